"""A worker: `python3 worker.py`; with `once` it ends when there is no job."""

import pathlib
import sys
import traceback

import jobs


def confirm(to):
    """Instead of a mail server there is a folder: without it no mail is sent."""
    pathlib.Path("sent", f"{to}.txt").write_text(f"To: {to}\n\nThank you.\n")


WORK = {"Confirm": confirm}

faktory = jobs.Faktory(wid="worker-1")
while True:
    job = faktory.fetch("mail")
    if job is None:
        if "once" in sys.argv:
            break
        faktory.ask("BEAT", {"wid": "worker-1"})
        continue
    try:
        WORK[job["jobtype"]](*job["args"])
    except Exception as error:
        print(f"failed: {job['jobtype']} {job['args'][0]}: {type(error).__name__}", flush=True)
        failure = {
            "jid": job["jid"],
            "errtype": type(error).__name__,
            "message": str(error),
            "backtrace": traceback.format_exc().splitlines(),
        }
        faktory.ask("FAIL", failure)
    else:
        faktory.ask("ACK", {"jid": job["jid"]})
        print(f"done: {job['jobtype']} {job['args'][0]}", flush=True)
