"""`python3 sets.py` prints how many jobs wait for a retry and how many are dead;
`python3 sets.py requeue retries` has those of a set run now."""

import json
import sys

import jobs

faktory = jobs.Faktory()
if sys.argv[1:2] == ["requeue"]:
    faktory.ask("MUTATE", {"cmd": "requeue", "target": sys.argv[2], "filter": {}})
sets = json.loads(faktory.ask("INFO"))["faktory"]["sets"]
print(f"retries {sets['retries']}, dead {sets['dead']}")
