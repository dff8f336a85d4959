//! Attributes of queues, case by case.

use super::*;

const LIMITS: Limits = Limits {
    open: false,
    message_bytes_max: 1 << 20,
};

fn place() -> Place {
    Place {
        account: "000000000000".to_owned(),
        region: "us-east-1".to_owned(),
        url: String::new(),
    }
}

fn texts(of: &[(&str, &str)]) -> Texts {
    Texts {
        kept: of
            .iter()
            .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
            .collect(),
        count: of.len(),
    }
}

fn made(of: &[(&str, &str)], fifo: bool) -> Result<Changes, Fault> {
    changes(&texts(of), fifo, None, LIMITS)
}

fn seen<'a>(name: &'a str, settings: &'a QueueSettings, place: &'a Place) -> QueueView<'a> {
    QueueView {
        name,
        settings,
        created_s: 1,
        changed_s: 2,
        ready: 3,
        delayed: 4,
        reserved: 5,
        place,
    }
}

/// Cases 9 and 13.
#[test]
fn attributes_have_names_and_ranges() {
    let refused = |name: &str, value: &str, fifo: bool| {
        let fault = made(&[(name, value)], fifo).expect_err(name);
        (fault.shape, fault.text.into_owned())
    };
    let (shape, text) = refused("Foo", "1", false);
    assert_eq!(
        (shape, text.as_str()),
        (Shape::InvalidAttributeName, "Unknown Attribute Foo.")
    );
    assert_eq!(
        refused("ContentBasedDeduplication", "true", false).1,
        "Unknown Attribute ContentBasedDeduplication."
    );
    assert_eq!(
        refused("DeduplicationScope", "queue", false).1,
        "You can specify the DeduplicationScope only when FifoQueue is set to true."
    );
    for value in ["43201", "-1", "x", "", "1.0"] {
        assert_eq!(
            refused("VisibilityTimeout", value, false).0,
            Shape::InvalidAttributeValue
        );
    }
    for value in ["1023", "1048577"] {
        assert_eq!(
            refused("MaximumMessageSize", value, false).0,
            Shape::InvalidAttributeValue
        );
    }
    assert_eq!(
        refused("QueueArn", "x", false).1,
        "Unknown Attribute QueueArn."
    );
    assert_eq!(
        refused("FifoThroughputLimit", "perMessageGroupId", true).0,
        Shape::InvalidAttributeValue
    );
    let high = [
        ("FifoThroughputLimit", "perMessageGroupId"),
        ("DeduplicationScope", "messageGroup"),
    ];
    assert!(made(&high, true).is_ok());
    assert!(asks_fifo(&texts(&[("FifoQueue", "tru")])).is_err());
    assert_eq!(asks_fifo(&texts(&[("FifoQueue", "TRUE")])), Ok(true));
    let tags = Tags::default();
    let set =
        |value: &str, fifo| changes(&texts(&[("FifoQueue", value)]), fifo, Some(&tags), LIMITS);
    assert_eq!(
        set("true", false).expect_err("no").text,
        "Unknown Attribute FifoQueue."
    );
    assert!(set("true", true).is_ok());
    assert_eq!(
        set("false", true).expect_err("no").text,
        "Invalid value for the parameter FifoQueue. Reason: Modifying queue type is not supported."
    );
}

/// Case 62.
#[test]
fn redrive_policies_are_read_and_shown_as_they_came() {
    let reason = |policy: &str| {
        made(&[("RedrivePolicy", policy)], false)
            .expect_err(policy)
            .text
            .into_owned()
    };
    let with = |count: &str| {
        format!(
            "{{\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dlq\",\"maxReceiveCount\":{count}}}"
        )
    };
    for count in ["0", "1001", "\"x\"", "-1", "1.5"] {
        let text = reason(&with(count));
        assert!(
            text.contains("valid values are from 1 to 1000 both inclusive."),
            "{text}"
        );
    }
    assert!(reason("{\"deadLetterTargetArn\":\"x\"}").ends_with(
        "Reason: Redrive policy does not contain mandatory attribute: maxReceiveCount."
    ));
    assert!(reason("{\"maxReceiveCount\":1}").contains("deadLetterTargetArn"));
    assert!(reason("[]").contains("Reason"));
    for (supplied, shown) in [("5", with("5")), ("\"5\"", with("5"))] {
        let policy = with(supplied);
        let made = made(&[("RedrivePolicy", &policy)], false).expect("good");
        assert_eq!(
            made.redrive.as_ref().map(|(name, _)| name.as_str()),
            Some("dlq")
        );
        let mut settings = QueueSettings::default();
        made.settings.lay_over(&mut settings);
        settings.tags = made.tags.over(&settings.tags);
        let place = place();
        let seen = seen("q", &settings, &place);
        assert_eq!(seen.value("RedrivePolicy"), Ok(Some(shown)));
        let other = [(
            "RedrivePolicy",
            "{\"maxReceiveCount\":\"5\",\"deadLetterTargetArn\":\"arn:aws:sqs:us-east-1:000000000000:dlq\"}",
        )];
        assert_eq!(seen.differs(&texts(&other)), Ok(None));
    }
    let removed = made(&[("RedrivePolicy", "")], false).expect("good");
    assert_eq!(removed.settings.attempts_max, Some(0));
    let mut tags = Tags::default();
    assert!(lets(&tags, "q"));
    tags.set(
        &tag("RedriveAllowPolicy"),
        Some(b"{\"redrivePermission\":\"denyAll\"}"),
    );
    assert!(!lets(&tags, "q"));
    let by = "{\"redrivePermission\":\"byQueue\",\"sourceQueueArns\":[\"arn:aws:sqs:r:0:q\"]}";
    tags.set(&tag("RedriveAllowPolicy"), Some(by.as_bytes()));
    assert!(lets(&tags, "q") && !lets(&tags, "p"));
    assert!(made(&[("RedriveAllowPolicy", by)], false).is_ok());
    for odd in [
        "x",
        "{}",
        "{\"redrivePermission\":\"byQueue\"}",
        "{\"redrivePermission\":\"some\"}",
    ] {
        assert!(
            made(&[("RedriveAllowPolicy", odd)], false).is_err(),
            "{odd}"
        );
    }
}

/// Case 12.
#[test]
fn a_fresh_queue_shows_exactly_its_attributes() {
    let mut settings = QueueSettings::default();
    defaults("q", LIMITS, &QueueSettings::default()).lay_over(&mut settings);
    let place = place();
    let all = ["All".to_owned()];
    let fresh = seen("q", &settings, &place).values(&all).expect("all");
    let of = |wanted: &str| {
        let value = fresh.iter().find(|(name, _)| *name == wanted);
        value.map(|(_, value)| value.as_str())
    };
    assert_eq!(fresh.len(), 12, "{fresh:?}");
    for (name, value) in [
        ("MaximumMessageSize", "1048576"),
        ("VisibilityTimeout", "30"),
        ("MessageRetentionPeriod", "345600"),
        ("SqsManagedSseEnabled", "true"),
        ("QueueArn", "arn:aws:sqs:us-east-1:000000000000:q"),
        ("DelaySeconds", "0"),
    ] {
        assert_eq!(of(name), Some(value), "{name}");
    }
    let fifo = seen("q.fifo", &settings, &place).values(&all).expect("all");
    assert_eq!(fifo.len(), 16);
    let nope = seen("q", &settings, &place).values(&["Nope".to_owned()]);
    assert_eq!(nope.expect_err("none").text, "Unknown Attribute Nope.");
    let policy = seen("q", &settings, &place).values(&["Policy".to_owned()]);
    assert_eq!(policy, Ok(Vec::new()));
}

/// Case 14.
#[test]
fn one_kind_of_encryption_is_shown_at_a_time() {
    let place = place();
    let mut settings = QueueSettings::default();
    let mut set = |of: &[(&str, &str)]| {
        let tags = settings.tags.clone();
        let made = changes(&texts(of), false, Some(&tags), LIMITS)?;
        settings.tags = made.tags.over(&tags);
        let seen = seen("q", &settings, &place);
        Ok::<_, Fault>((
            seen.value("KmsMasterKeyId")?,
            seen.value("SqsManagedSseEnabled")?,
        ))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(
        set(&[("KmsMasterKeyId", "k")]),
        Ok((text("k"), text("false")))
    );
    assert_eq!(set(&[("KmsMasterKeyId", "")]), Ok((None, text("false"))));
    let both = set(&[("KmsMasterKeyId", "k"), ("SqsManagedSseEnabled", "true")]);
    assert_eq!(both.expect_err("both").shape, Shape::InvalidAttributeName);
}

#[test]
fn tags_are_bounded() {
    let there = Tags::default();
    let many: Vec<(String, String)> = (0..51).map(|n| (n.to_string(), String::new())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
    assert_eq!(
        check_tags("q", &texts(&many), &there)
            .expect_err("many")
            .text,
        "Too many tags added for queue q."
    );
    let fifty = check_tags("q", &texts(&many[..50]), &there).expect("fifty");
    assert!(check_tags("q", &texts(&[("one", "more")]), &fifty).is_err());
    assert!(check_tags("q", &texts(&[("0", "again")]), &fifty).is_ok());
    for key in ["", "aws:x", "AWS:x", &"k".repeat(129)] {
        assert!(
            check_tags("q", &texts(&[(key, "")]), &there).is_err(),
            "{key}"
        );
    }
}

#[test]
fn a_queue_that_is_created_again_with_the_default_of_a_key_is_the_same() {
    let given = [("KmsDataKeyReusePeriodSeconds", "300")];
    let made = made(&given, false).expect("good");
    let settings = QueueSettings {
        tags: made.tags,
        ..QueueSettings::default()
    };
    let place = place();
    let seen = seen("q", &settings, &place);
    assert_eq!(seen.value(given[0].0), Ok(None));
    assert_eq!(seen.differs(&texts(&given)), Ok(None));
    let other = [("KmsDataKeyReusePeriodSeconds", "301")];
    assert_eq!(seen.differs(&texts(&other)), Ok(Some(other[0].0)));
}
