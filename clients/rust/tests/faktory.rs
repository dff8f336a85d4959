//! The crate `faktory`, unmodified, against the real binary (`QUINTET`).

#![expect(deprecated, reason = "there is no other way to see the sets")]

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faktory::ent::{Batch, BatchId, CallbackState, JobState, ProgressUpdate};
use faktory::mutate::{Filter, JobSet};
use faktory::{Client, FaktoryState, Job, JobBuilder, JobId, StopReason, Worker, WorkerId};
use quintet_clients::{PATIENCE, Server, quintet};
use tokio::sync::watch;

const PASSWORD: &str = "swordfish";

/// A server, and where clients find it.
struct Faktory {
    server: Server,
    url: String,
}

impl Faktory {
    fn start(folder: &Path) -> Self {
        Self::of(Server::start(
            folder,
            "faktory",
            "127.0.0.1:0",
            &Self::options(),
        ))
    }

    fn of(server: Server) -> Self {
        let url = format!("tcp://:{PASSWORD}@{}", server.address);
        Self { server, url }
    }

    fn options() -> String {
        format!("password = \"{PASSWORD}\"\nent = true")
    }

    /// `kill -9`, and a start on the same data at the same address.
    fn kill_and_start(self) -> Self {
        Self::of(self.server.kill_and_start("faktory", &Self::options()))
    }

    async fn client(&self) -> Client {
        Client::connect_to(&self.url).await.expect("let in")
    }
}

/// The jobs that a worker has done.
type Done = Arc<Mutex<Vec<u64>>>;

fn job(number: u64) -> Job {
    Job::new("adds", vec![number]).on_queue("numbers")
}

/// A worker of so many loops that notes what it does.
async fn worker(url: &str, wid: &str, loops: usize, done: &Done) -> Worker<io::Error> {
    let done = Arc::clone(done);
    Worker::builder::<io::Error>()
        .wid(WorkerId::new(wid))
        .workers(loops)
        .register_fn("adds", move |job: Job| {
            let done = Arc::clone(&done);
            async move {
                let number = job.args()[0].as_u64().expect("a number");
                done.lock().expect("whole").push(number);
                Ok(())
            }
        })
        .register_fn("fails", |_| async move {
            Err(io::Error::other("no such number"))
        })
        .register_fn("never ends", |_| std::future::pending())
        .connect_to(url)
        .await
        .expect("let in")
}

/// Asks until what the server tells is so.
async fn until(client: &mut Client, so: impl Fn(&FaktoryState) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so(&client.current_info().await.expect("a reply")) {
        assert!(Instant::now() < end, "it did not come to pass");
    }
}

/// How many jobs are scheduled, wait for a retry and are dead.
fn sizes(info: &FaktoryState) -> [u64; 3] {
    ["Scheduled", "Retries", "Dead"].map(|set| {
        let size = &info.data.tasks[set]["size"];
        size.as_u64().expect("a number")
    })
}

async fn sizes_of(client: &mut Client) -> [u64; 3] {
    sizes(&client.current_info().await.expect("a reply"))
}

/// Sends an operator's request to workers.
fn operator(folder: &Path, act: &str, wid: &str) {
    let asked = quintet()
        .args(["workers", act, wid, "--data"])
        .arg(folder.join("data"))
        .status();
    assert!(asked.expect("it ran").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_pushed_fetched_acknowledged_and_failed() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;
    client.enqueue(job(1)).await.expect("pushed");
    let (count, refused) = client
        .enqueue_many((2..5u32).map(|number| job(number.into())))
        .await
        .expect("pushed");
    assert_eq!((count, refused), (3, None));
    let nameless = Job::new("", vec![6]).on_queue("numbers");
    let jid = nameless.id().to_string();
    let (count, refused) = client.enqueue_many([nameless]).await.expect("answered");
    assert_eq!(count, 0);
    let why = &refused.expect("one was")[&jid];
    assert_eq!(why, "jobs must have a jobtype parameter");
    let info = client.current_info().await.expect("a reply");
    assert_eq!(info.data.queues.get("numbers"), Some(&4));
    assert_eq!((info.data.total_enqueued, info.data.total_queues), (4, 1));
    assert!(info.server.description.contains("Enterprise"));

    let done = Done::default();
    let mut worker = worker(&server.url, "worker-1", 1, &done).await;
    for _ in 0..4 {
        assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    }
    assert_eq!(*done.lock().expect("whole"), [1, 2, 3, 4]);

    // One that fails waits for its retry, and is dead without one.
    let fails = JobBuilder::new("fails").queue("numbers").retry(1).build();
    client.enqueue(fails).await.expect("pushed");
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let info = client.current_info().await.expect("a reply");
    assert_eq!((sizes(&info), info.data.total_failures), ([0, 1, 0], 1));
    client
        .requeue(JobSet::Retries, &Filter::default())
        .await
        .expect("requeued");
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let info = client.current_info().await.expect("a reply");
    assert_eq!((sizes(&info), info.data.total_failures), ([0, 0, 1], 2));
    assert_eq!(info.data.total_processed, 6);
    // Put back, it comes with what is known of its failure.
    client
        .requeue(JobSet::Dead, &Filter::default())
        .await
        .expect("requeued");
    let seen = Arc::new(Mutex::new(None));
    let notes = Arc::clone(&seen);
    let mut other = Worker::builder::<io::Error>()
        .register_fn("fails", move |job: Job| {
            *notes.lock().expect("whole") = job.failure().cloned();
            async { Ok(()) }
        })
        .connect_to(&server.url)
        .await
        .expect("let in");
    assert!(other.run_one(0, &["numbers"]).await.expect("it ran"));
    let failure = seen.lock().expect("whole").take().expect("it has failed");
    assert_eq!(failure.message.as_deref(), Some("no such number"));
    assert_eq!((failure.retry_count, failure.retry_remaining), (1, 0));
    let info = client.current_info().await.expect("a reply");
    assert_eq!((sizes(&info), info.data.total_processed), ([0; 3], 7));

    // A paused queue gives nothing; one that is removed has nothing.
    client.enqueue(job(5)).await.expect("pushed");
    client.queue_pause(&["numbers"]).await.expect("paused");
    assert!(!worker.run_one(0, &["numbers"]).await.expect("it ran"));
    client.queue_resume(&["numbers"]).await.expect("resumed");
    client.queue_remove(&["numbers"]).await.expect("removed");
    assert!(!worker.run_one(0, &["numbers"]).await.expect("it ran"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_jobs_are_changed_by_their_state() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;
    let now = client.current_info().await.expect("a reply").now;
    let later = |kind: &str, wait: Duration| {
        let mut job = JobBuilder::new(kind);
        job.args([kind]).queue("later").at(now + wait).build()
    };
    let hour = Duration::from_secs(3600);
    let jobs: Vec<Job> = ["a", "b", "c", "d", "e", "f", "g"]
        .map(|kind| later(kind, hour))
        .into();
    let ids: Vec<_> = jobs.iter().map(|job| job.id().clone()).collect();
    client.enqueue_many(jobs).await.expect("pushed");
    let info = client.current_info().await.expect("a reply");
    assert_eq!((sizes(&info), info.data.total_enqueued), ([7, 0, 0], 0));

    let ran = Arc::new(Mutex::new(Vec::new()));
    let mut worker = Worker::builder::<io::Error>();
    for kind in ["a", "b", "c", "d", "e", "f", "g", "due"] {
        let ran = Arc::clone(&ran);
        worker = worker.register_fn(kind, move |job: Job| {
            ran.lock().expect("whole").push(job.kind().to_owned());
            async { Err(io::Error::other("not today")) }
        });
    }
    let mut worker = worker.connect_to(&server.url).await.expect("let in");
    assert!(!worker.run_one(0, &["later"]).await.expect("it ran"));
    let mut worker_runs = async |kinds: &[&str]| {
        for _ in kinds {
            assert!(worker.run_one(0, &["later"]).await.expect("it ran"));
        }
        assert_eq!(std::mem::take(&mut *ran.lock().expect("whole")), kinds);
    };
    // Scheduled: by their ids, their type, a pattern over all of them, both.
    use JobSet::{Dead, Retries, Scheduled};
    client
        .requeue_by_ids(Scheduled, &[&ids[0]])
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [6, 0, 0]);
    client
        .requeue(Scheduled, Filter::from_kind("b"))
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [5, 0, 0]);
    worker_runs(&["a", "b"]).await;
    let of_c = Filter::from_pattern(r#"*"args":\["c"\]*"#);
    client.kill(Scheduled, &of_c).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [4, 2, 1]);
    let neither = Filter::from_kind_and_pattern("d", "*\"e\"*");
    client.discard(Scheduled, neither).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [4, 2, 1]);
    let both = Filter::from_kind_and_pattern("d", "*\"d\"*");
    client.discard(Scheduled, both).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [3, 2, 1]);
    client
        .discard_by_ids(Scheduled, &[&ids[4]])
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [2, 2, 1]);
    client
        .kill_by_ids(Scheduled, &[&ids[5]])
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [1, 2, 2]);
    client.clear(Scheduled).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 2, 2]);

    // Those that failed.
    client
        .kill(Retries, Filter::from_kind("a"))
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 1, 3]);
    client
        .discard(Retries, Filter::from_kind("x"))
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 1, 3]);
    client
        .requeue(Retries, Filter::empty())
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 3]);
    worker_runs(&["b"]).await;
    client
        .discard_by_ids(Retries, &[&ids[1]])
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 3]);

    // And the dead.
    client.kill(Dead, Filter::empty()).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 3]);
    client
        .requeue_by_ids(Dead, &[&ids[2]])
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 2]);
    worker_runs(&["c"]).await;
    client.clear(Retries).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 2]);
    client
        .discard(Dead, Filter::from_kind("a"))
        .await
        .expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 1]);
    client.clear(Dead).await.expect("changed");
    assert_eq!(sizes_of(&mut client).await, [0, 0, 0]);

    // What is due comes by itself, and not before.
    let soon = client.current_info().await.expect("a reply").now + Duration::from_secs(1);
    let mut due = JobBuilder::new("due");
    let due = due.queue("later").at(soon).build();
    client.enqueue(due).await.expect("pushed");
    until(&mut client, |info| sizes(info) == [0; 3]).await;
    let now = client.current_info().await.expect("a reply").now;
    assert!(now >= soon, "{now} {soon}");
    worker_runs(&["due"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quiet_worker_takes_nothing_more_and_ends_on_request() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;
    let (end, ends) = watch::channel(false);
    let mut worker = Worker::builder::<io::Error>()
        .wid(WorkerId::new("worker-1"))
        .workers(2)
        .register_fn("adds", move |_| {
            let mut ends = ends.clone();
            async move {
                ends.wait_for(|end| *end).await.expect("it comes");
                Ok(())
            }
        })
        .connect_to(&server.url)
        .await
        .expect("let in");
    client.enqueue(job(1)).await.expect("pushed");
    let run = tokio::spawn(async move { worker.run(&["numbers"]).await });
    until(&mut client, |info| info.data.tasks["Busy"]["size"] == 1).await;
    // The loop that waits for a job, over a connection of its own, ends; the other one finishes
    // what it has, and the beats go on.
    operator(folder.path(), "quiet", "worker-1");
    until(&mut client, |info| info.server.connections == 3).await;
    client.enqueue(job(2)).await.expect("pushed");
    end.send(true).expect("it waits for it");
    until(&mut client, |info| info.data.total_processed == 1).await;
    until(&mut client, |info| info.server.connections == 2).await;
    operator(folder.path(), "terminate", "worker-1");
    let stopped = tokio::time::timeout(PATIENCE, run).await.expect("in time");
    let stopped = stopped.expect("it ran").expect("no error");
    assert_eq!(stopped.reason, StopReason::ServerInstruction);
    assert_eq!(stopped.workers_still_running, 0);
    let info = client.current_info().await.expect("a reply");
    assert_eq!(info.data.queues.get("numbers"), Some(&1));
    assert_eq!(
        (info.data.total_processed, info.data.total_failures),
        (1, 0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_job_fails_when_its_worker_must_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;
    let endless = Job::new("never ends", vec![1]).on_queue("numbers");
    client.enqueue(endless).await.expect("pushed");
    let mut worker = worker(&server.url, "worker-1", 2, &Done::default()).await;
    let run = tokio::spawn(async move { worker.run(&["numbers"]).await });
    until(&mut client, |info| info.data.tasks["Busy"]["size"] == 1).await;
    operator(folder.path(), "terminate", "worker-1");
    let stopped = tokio::time::timeout(PATIENCE, run).await.expect("in time");
    let stopped = stopped.expect("it ran").expect("no error");
    assert_eq!(stopped.reason, StopReason::ServerInstruction);
    assert_eq!(stopped.workers_still_running, 1);
    assert_eq!(sizes_of(&mut client).await, [0, 1, 0]);
}

/// The list of reserved jobs for an operator.
fn reserved(folder: &Path, queue: &str) -> String {
    let told = quintet()
        .args(["browse", queue, "--state", "reserved", "--count", "1000"])
        .args(["--json", "--data"])
        .arg(folder.join("data"))
        .output()
        .expect("it ran");
    assert!(told.status.success(), "{told:?}");
    String::from_utf8(told.stdout).expect("text")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_by_ten_workers_outlive_a_kill() {
    const JOBS: u64 = 1000;
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let id = |number: u64| format!("number-{number}");
    for from in (0..JOBS).step_by(100) {
        let some = (0..100u8).map(|of| {
            let number = from + u64::from(of);
            let mut job = JobBuilder::new("adds");
            let job = job.jid(JobId::new(id(number))).args([number]);
            job.queue("many").build()
        });
        let pushed = server.client().await.enqueue_many(some).await;
        assert_eq!(pushed.expect("pushed"), (100, None));
    }
    let done = Done::default();
    // The last ones wait for the kill, so that it comes in between however fast the others are.
    let (kill, killed) = watch::channel(false);
    let adds = |job: Job, done: Done, mut killed: watch::Receiver<bool>| async move {
        let number = job.args()[0].as_u64().expect("a number");
        if number >= JOBS - 100 {
            killed.wait_for(|killed| *killed).await.expect("it comes");
        }
        done.lock().expect("whole").push(number);
        Ok(())
    };
    let workers: Vec<_> = (0..10)
        .map(|number| {
            let (url, done, killed) = (server.url.clone(), Arc::clone(&done), killed.clone());
            tokio::spawn(async move {
                let end = Instant::now() + PATIENCE;
                loop {
                    let (url, done, killed) = (url.clone(), Arc::clone(&done), killed.clone());
                    // In a task of its own: when the server is gone the crate panics, as it cannot
                    // take leave of it.
                    let ran = tokio::spawn(async move {
                        let mut worker = Worker::builder::<io::Error>()
                            .wid(WorkerId::new(format!("worker-{number}")))
                            .register_fn("adds", move |job| {
                                adds(job, Arc::clone(&done), killed.clone())
                            })
                            .connect_to(&url)
                            .await?;
                        while worker.run_one(0, &["many"]).await? {}
                        Ok::<(), faktory::Error>(())
                    });
                    if let Ok(Ok(())) = ran.await {
                        return;
                    }
                    assert!(Instant::now() < end, "no server");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    let mut client = server.client().await;
    until(&mut client, |info| info.data.total_processed >= JOBS / 2).await;
    // It would take leave of a server that is gone.
    std::mem::forget(client);
    let server = server.kill_and_start();
    kill.send(true).expect("they wait for it");
    for worker in workers {
        worker.await.expect("nothing is there any more");
    }
    // What nobody did was handed out in the moment of the kill, and is under its reservation.
    let mut client = server.client().await;
    let info = client.current_info().await.expect("a reply");
    assert_eq!((info.data.total_enqueued, sizes(&info)), (0, [0; 3]));
    let reserved = reserved(folder.path(), "many");
    let done: BTreeSet<u64> = done.lock().expect("whole").iter().copied().collect();
    let missing = (0..JOBS).filter(|number| !done.contains(number));
    for number in missing {
        let name = format!("\"name\":\"{}\"", id(number));
        assert!(reserved.contains(&name), "{number} is lost: {reserved}");
    }
    assert!(reserved.lines().count() <= 10, "{reserved}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let wrong = server.url.replace(PASSWORD, "trout");
    let refused = Client::connect_to(&wrong).await.err().expect("it is");
    assert!(
        format!("{refused:?}").contains("Invalid password"),
        "{refused:?}"
    );
    let none = server.url.replace(&format!(":{PASSWORD}@"), "");
    assert!(Client::connect_to(&none).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn features_of_the_enterprise_version_work() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;

    // Unique jobs.
    let unique = || {
        let mut job = JobBuilder::new("adds");
        job.args([7]).queue("numbers").unique_for(60).build()
    };
    client.enqueue(unique()).await.expect("pushed");
    let again = client.enqueue(unique()).await.expect_err("it is not");
    assert!(format!("{again:?}").contains("Unique"), "{again:?}");
    client.queue_remove(&["numbers"]).await.expect("removed");

    // A batch of two, one callback.
    let done = Done::default();
    let mut worker = worker(&server.url, "worker-1", 1, &done).await;
    let callback = Job::new("adds", vec![100]).on_queue("done");
    let batch = Batch::builder()
        .description("two")
        .with_success_callback(callback);
    let mut batch = client.start_batch(batch).await.expect("made");
    let id = batch.id().clone();
    for number in [1, 2] {
        batch.add(job(number)).await.expect("added");
    }
    batch.commit().await.expect("committed");
    let status = client.get_batch_status(&id).await.expect("a reply");
    let status = status.expect("it is there");
    assert_eq!((status.total, status.pending), (2, 2));
    for queue in ["numbers", "numbers", "done"] {
        assert!(worker.run_one(0, &[queue]).await.expect("it ran"));
    }
    assert_eq!(*done.lock().expect("whole"), [1, 2, 100]);
    let status = client.get_batch_status(&id).await.expect("a reply");
    let status = status.expect("it is there");
    assert_eq!(status.pending, 0);
    assert_eq!(status.success_callback_state, CallbackState::FinishedOk);
    let none = BatchId::new("b-0000000000000000");
    let opened = client.open_batch(&none).await.expect("a reply");
    assert!(opened.is_none());

    // What becomes of a job, which the crate has tracked unless it is told not to, and how far it
    // is, as its worker says.
    let tracked = job(9);
    let jid = tracked.id().clone();
    client.enqueue(tracked).await.expect("pushed");
    let seen = client.get_progress(&jid).await.expect("a reply");
    let seen = seen.expect("a reply");
    assert_eq!((seen.state, seen.percent), (JobState::Enqueued, None));
    assert!(seen.updated_at.is_some());
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let seen = client.get_progress(&jid).await.expect("a reply");
    assert_eq!(seen.expect("a reply").state, JobState::Success);
    let mut untracked = job(10);
    untracked.custom.insert("track".to_owned(), 0.into());
    let jid = untracked.id().clone();
    client.enqueue(untracked).await.expect("pushed");
    let seen = client.get_progress(&jid).await.expect("a reply");
    assert_eq!(seen.expect("a reply").state, JobState::Unknown);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_says_how_far_a_job_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let mut client = server.client().await;
    let mut steps = JobBuilder::new("steps");
    let steps = steps.queue("numbers").retry(0).build();
    let jid = steps.id().clone();
    client.enqueue(steps).await.expect("pushed");
    let url = server.url.clone();
    let mut worker: Worker<io::Error> = Worker::builder()
        .wid(WorkerId::new("worker-1"))
        .workers(1)
        .register_fn("steps", move |job: Job| {
            let url = url.clone();
            async move {
                let mut client = Client::connect_to(&url).await.expect("let in");
                let jid = job.id().clone();
                let update = ProgressUpdate::builder(jid.clone())
                    .percent(40)
                    .desc("two of five".to_owned())
                    .build();
                client.set_progress(update).await.expect("taken down");
                let seen = client.get_progress(&jid).await.expect("a reply");
                let seen = seen.expect("a reply");
                assert_eq!(seen.state, JobState::Working);
                assert_eq!(seen.percent, Some(40));
                assert_eq!(seen.desc.as_deref(), Some("two of five"));
                Err(io::Error::other("no third"))
            }
        })
        .connect_to(&server.url)
        .await
        .expect("let in");
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    // It is not tried again, and gone, and it is known that it has failed.
    let seen = client.get_progress(&jid).await.expect("a reply");
    let seen = seen.expect("a reply");
    assert_eq!((seen.state, seen.percent), (JobState::Failed, Some(40)));
}
