//! The crate `faktory`, unmodified, against the real binary (`QUINTET`).

#![expect(deprecated, reason = "there is no other way to see the sets")]

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};

use faktory::ent::{Batch, BatchId, CallbackState, JobState, ProgressUpdate};
use faktory::mutate::{Filter, JobSet};
use faktory::{Client, Job, JobBuilder, StopReason, Worker, WorkerId};
use quintet_clients::{PATIENCE, Server, quintet};

const PASSWORD: &str = "swordfish";

/// A server, and where clients find it.
struct Faktory {
    _server: Server,
    url: String,
}

impl Faktory {
    fn start(folder: &Path) -> Self {
        let options = format!("password = \"{PASSWORD}\"\nent = true");
        let server = Server::start(folder, "faktory", "127.0.0.1:0", &options);
        let url = format!("tcp://:{PASSWORD}@{}", server.address);
        Self {
            _server: server,
            url,
        }
    }

    async fn client(&self) -> Client {
        Client::connect_to(&self.url).await.expect("let in")
    }
}

/// What a worker has done.
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
        .connect_to(url)
        .await
        .expect("let in")
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
    let info = client.current_info().await.expect("told");
    assert_eq!(info.data.queues.get("numbers"), Some(&4));
    assert!(info.server.description.contains("Enterprise"));

    let done = Done::default();
    let mut worker = worker(&server.url, "worker-1", 1, &done).await;
    for _ in 0..4 {
        assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    }
    assert_eq!(*done.lock().expect("whole"), [1, 2, 3, 4]);

    // One that fails waits for its retry, and is dead without one.
    let fails = |retry| {
        let mut job = JobBuilder::new("fails");
        job.queue("numbers").retry(retry).build()
    };
    client.enqueue(fails(1)).await.expect("pushed");
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let retries = |info: &faktory::FaktoryState| info.data.tasks["Retries"]["size"].clone();
    let info = client.current_info().await.expect("told");
    assert_eq!((retries(&info), info.data.total_failures), (1.into(), 1));
    client
        .requeue(JobSet::Retries, &Filter::default())
        .await
        .expect("requeued");
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let info = client.current_info().await.expect("told");
    assert_eq!(info.data.tasks["Dead"]["size"], 1);
    client.clear(JobSet::Dead).await.expect("cleared");
    let info = client.current_info().await.expect("told");
    assert_eq!(info.data.tasks["Dead"]["size"], 0);

    // A paused queue gives nothing; one that is removed has nothing.
    client.enqueue(job(5)).await.expect("pushed");
    client.queue_pause(&["numbers"]).await.expect("paused");
    assert!(!worker.run_one(0, &["numbers"]).await.expect("it ran"));
    client.queue_resume(&["numbers"]).await.expect("resumed");
    client.queue_remove(&["numbers"]).await.expect("removed");
    assert!(!worker.run_one(0, &["numbers"]).await.expect("it ran"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_a_worker() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let done = Done::default();
    let mut worker = worker(&server.url, "worker-1", 2, &done).await;
    let asked = quintet()
        .args(["workers", "terminate", "worker-1", "--data"])
        .arg(folder.path().join("data"))
        .status();
    assert!(asked.expect("it ran").success());
    let run = worker.run(&["numbers"]);
    let stopped = tokio::time::timeout(PATIENCE, run).await.expect("in time");
    let reason = stopped.expect("no error").reason;
    assert_eq!(reason, StopReason::ServerInstruction);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = Faktory::start(folder.path());
    let wrong = server.url.replace(PASSWORD, "trout");
    assert!(Client::connect_to(&wrong).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sold_works() {
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
    let status = client.get_batch_status(&id).await.expect("told");
    let status = status.expect("it is there");
    assert_eq!((status.total, status.pending), (2, 2));
    for queue in ["numbers", "numbers", "done"] {
        assert!(worker.run_one(0, &[queue]).await.expect("it ran"));
    }
    assert_eq!(*done.lock().expect("whole"), [1, 2, 100]);
    let status = client.get_batch_status(&id).await.expect("told");
    let status = status.expect("it is there");
    assert_eq!(status.pending, 0);
    assert_eq!(status.success_callback_state, CallbackState::FinishedOk);
    let none = BatchId::new("b-0000000000000000");
    let opened = client.open_batch(&none).await.expect("told");
    assert!(opened.is_none());

    // What becomes of a job, which the crate has tracked unless it is told not to, and how far it
    // is, as its worker says.
    let tracked = job(9);
    let jid = tracked.id().clone();
    client.enqueue(tracked).await.expect("pushed");
    let seen = client.get_progress(&jid).await.expect("told");
    let seen = seen.expect("told");
    assert_eq!((seen.state, seen.percent), (JobState::Enqueued, None));
    assert!(seen.updated_at.is_some());
    assert!(worker.run_one(0, &["numbers"]).await.expect("it ran"));
    let seen = client.get_progress(&jid).await.expect("told");
    assert_eq!(seen.expect("told").state, JobState::Success);
    let mut untracked = job(10);
    untracked.custom.insert("track".to_owned(), 0.into());
    let jid = untracked.id().clone();
    client.enqueue(untracked).await.expect("pushed");
    let seen = client.get_progress(&jid).await.expect("told");
    assert_eq!(seen.expect("told").state, JobState::Unknown);
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
                let seen = client.get_progress(&jid).await.expect("told");
                let seen = seen.expect("told");
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
    let seen = client.get_progress(&jid).await.expect("told");
    let seen = seen.expect("told");
    assert_eq!((seen.state, seen.percent), (JobState::Failed, Some(40)));
}
