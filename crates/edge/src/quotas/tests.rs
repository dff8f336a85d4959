//! Quotas without sockets.

use std::net::Ipv4Addr;

use quintet_config::from_text;

use super::*;

fn quotas(text: &str) -> Quotas {
    let config = from_text(text).expect("read");
    Quotas::new(&config, Instant::now()).expect("fine")
}

fn at(number: u32) -> Option<IpAddr> {
    Some(Ipv4Addr::from(0x0a00_0000 + number).into())
}

fn known(quotas: &Quotas) -> usize {
    locked(&quotas.used).by.len()
}

const MS: u64 = 1_000_000;

#[test]
fn bodies_over_http_count_for_their_address_and_user_until_they_are_dropped() {
    let quotas = quotas(
        "[[user]]\nname = 'ann'\n[[limit]]\naddress = '10.0.0.0/8'\nbytes_in_flight_max = '2MiB'\n\
         [[limit]]\nuser = 'ann'\nbytes_in_flight_max = '1MiB'\n",
    );
    let ann = || Some((Principal(7), Some("ann".into())));
    let held = quotas.hold(at(1), ann(), 1 << 20).expect("room");
    assert_eq!(held.len(), 2);
    assert_eq!(quotas.hold(at(1), ann(), 1).err(), Some(Of::User));
    // What it took of its address before that is given back.
    let more = quotas.hold(at(1), None, 1 << 20).expect("room");
    assert_eq!(quotas.hold(at(1), None, 1).err(), Some(Of::Address));
    assert!(
        quotas
            .hold(at(2), None, 1)
            .is_ok_and(|held| held.len() == 1)
    );
    assert!(
        quotas
            .hold(None, None, 9 << 20)
            .is_ok_and(|held| held.is_empty())
    );
    drop((held, more));
    assert!(quotas.hold(at(1), ann(), 1 << 20).is_ok());
    let refused: f64 = quotas.command_errors().iter().map(|(_, count)| count).sum();
    assert_eq!(refused, 2.0);
}

#[test]
fn a_connection_counts_until_it_is_gone() {
    let quotas = quotas("[[limit]]\naddress = '10.0.0.0/8'\nconnections_max = 2\n");
    let (one, two) = (quotas.arrive(at(1)), quotas.arrive(at(1)));
    assert!(one.is_ok() && two.is_ok());
    assert_eq!(quotas.arrive(at(1)).err(), Some(Limited::Connections));
    assert!(quotas.arrive(at(2)).is_ok() && quotas.arrive(None).is_ok());
    drop(two);
    assert!(quotas.arrive(at(1)).is_ok());
    let refused: f64 = quotas.command_errors().iter().map(|(_, count)| count).sum();
    assert!((refused - 1.0).abs() < f64::EPSILON);
}

#[test]
fn a_client_over_its_rate_waits_for_its_turn() {
    let quotas =
        quotas("[[limit]]\naddress = '*'\nrequests_per_second = 100\nrequests_burst = 4\n");
    let mut meters = [(); 3].map(|()| quotas.arrive(at(1)).expect("room"));
    let [first, second, third] = &mut meters;
    assert_eq!(first.room(|| 0, 64), 4);
    first.charge(|| 0, 4);
    assert_eq!((first.room(|| 0, 64), second.room(|| 0, 64)), (0, 0));
    assert_eq!(first.reserve(0), (10 * MS, Some(Of::Address)));
    assert_eq!(second.reserve(0), (20 * MS, Some(Of::Address)));
    assert_eq!(third.reserve(0), (30 * MS, Some(Of::Address)));
    // Asked again it keeps its turn, and nobody has it before.
    assert_eq!(first.reserve(MS), (10 * MS, None));
    assert_eq!(first.room(|| 10 * MS - 1, 64), 0);
    assert_eq!(first.room(|| 10 * MS, 64), 1);
    first.charge(|| 10 * MS, 1);
    assert_eq!(first.room(|| 10 * MS, 64), 0);
    // Who goes away before its turn leaves it to others.
    let [_first, second, third] = meters;
    drop((second, third));
    let mut next = quotas.arrive(at(1)).expect("room");
    assert_eq!(next.reserve(10 * MS).0, 20 * MS, "both turns came back");
    // Another address has its own.
    assert_eq!(quotas.arrive(at(2)).expect("room").room(|| 0, 64), 4);
}

#[test]
fn without_limits_nothing_is_counted() {
    let quotas = quotas("");
    let own = Some(IpAddr::from([127, 0, 0, 1]));
    let meter = quotas.arrive(own).expect("room");
    let clock = || -> u64 { unreachable!("no clock is read") };
    assert_eq!(meter.room(clock, 64), 64);
    assert_eq!((known(&quotas), meter.is_tight()), (0, None));
}

#[test]
fn bytes_are_those_of_all_connections() {
    let quotas = quotas("[[limit]]\naddress = '*'\nbytes_in_flight_max = '1MiB'\n");
    let mut meters = [(); 2].map(|()| quotas.arrive(at(1)).expect("room"));
    let [one, two] = &mut meters;
    one.hold(500 << 10);
    assert_eq!(two.is_tight(), None);
    two.hold(500 << 10);
    assert_eq!(one.is_tight(), Some(Of::Address));
    let quota = one.tight().expect("tight");
    let mut other = quotas.arrive(at(2)).expect("room");
    other.hold(2 << 20);
    assert!(two.counts_in(&quota) && !other.counts_in(&quota));
    let [one, two] = meters;
    drop(two);
    assert_eq!(one.is_tight(), None);
}

#[test]
fn addresses_are_forgotten_when_nothing_of_them_counts() {
    let quotas = quotas("[[limit]]\naddress = '*'\nfailures_per_minute = 2\n");
    let stays: Vec<_> = (0..100)
        .map(|n| quotas.arrive(at(n)).expect("room"))
        .collect();
    for n in 1000..300_000 {
        drop(quotas.arrive(at(n)));
        assert!(known(&quotas) <= 2 * REMEMBERED_LEAST + stays.len());
    }
    // One that has failed is remembered, but not without end.
    quotas.failed(at(7_000_000));
    quotas.failed(at(7_000_000));
    assert_eq!(quotas.arrive(at(7_000_000)).err(), Some(Limited::Failures));
    for n in 0..4 * u32::try_from(REMEMBERED_MAX).expect("small") {
        quotas.failed(at(1_000_000 + n));
    }
    assert!(known(&quotas) <= 2 * REMEMBERED_MAX + stays.len());
    assert!(known(&quotas) >= stays.len());
    drop(stays);
    // A /64 of IPv6 is one address.
    let before = known(&quotas);
    for last in 0..50_u128 {
        let address = 0x2001_0db8_u128 << 96 | last;
        quotas.failed(Some(std::net::Ipv6Addr::from(address).into()));
    }
    assert!(known(&quotas) <= before + 1);
}

#[test]
fn a_request_over_http_waits_a_little_or_is_refused() {
    let quotas = quotas("[[limit]]\naddress = '*'\nrequests_per_second = 1\n");
    let now = Instant::now();
    let waits: Vec<Pace> = (0..8).map(|_| quotas.pace_address(at(1), now)).collect();
    let second = |n| Duration::from_secs(n);
    for (n, wait) in waits.iter().enumerate().take(6) {
        assert_eq!(*wait, Pace::In(second(n as u64)), "{n}");
    }
    assert_eq!(waits[6..], [Pace::Not(second(6), Of::Address); 2]);
    // What was refused takes nobody's turn.
    let later = now + second(1);
    assert_eq!(quotas.pace_address(at(1), later), Pace::In(second(5)));
    assert_eq!(quotas.pace_address(None, now), Pace::In(Duration::ZERO));
}

#[test]
fn a_reload_counts_for_open_connections() {
    let text = |most: u32| {
        format!(
            "[[limit]]\naddress = '*'\nconnections_max = {most}\n[[user]]\nname = 'ann'\n\
                 [[limit]]\nuser = 'ann'\nconnections_max = 1\n"
        )
    };
    let quotas = quotas(&text(1));
    let mut stays = vec![quotas.arrive(at(1)).expect("room")];
    assert!(quotas.arrive(at(1)).is_err());
    let config = from_text(&text(2)).expect("read");
    quotas.reload(config.limit_table().expect("fine"));
    stays.push(quotas.arrive(at(1)).expect("room"));
    assert!(quotas.arrive(at(1)).is_err());
    // Users have their own.
    let ann = |meter: &mut Meter| quotas.become_of(meter, Principal(7), Some("ann".into()));
    let [one, two] = &mut stays[..] else {
        unreachable!("two are there");
    };
    assert_eq!(ann(one), Ok(()));
    assert_eq!(ann(two), Err(Limited::Connections));
    let nobody = quotas.become_of(one, Principal::ANONYMOUS, None);
    assert_eq!((nobody, ann(two)), (Ok(()), Ok(())));
}

#[test]
fn bytes_of_a_connection_go_with_it_to_another_user() {
    let user = |name: &str| {
        format!(
            "[[user]]\nname = '{name}'\n[[limit]]\nuser = '{name}'\nbytes_in_flight_max = '1MiB'\n"
        )
    };
    let quotas = quotas(&[user("ann"), user("bob")].concat());
    let come = |number: u32, name: &str, meter: &mut Meter| {
        let become_of = quotas.become_of(meter, Principal(number), Some(name.into()));
        assert_eq!(become_of, Ok(()));
    };
    let mut one = quotas.arrive(None).expect("room");
    come(7, "ann", &mut one);
    one.hold(1 << 20);
    let mut other_ann = quotas.arrive(None).expect("room");
    come(7, "ann", &mut other_ann);
    let mut other_bob = quotas.arrive(None).expect("room");
    come(8, "bob", &mut other_bob);
    let tight = |meters: [&Meter; 3]| meters.map(|meter| meter.is_tight().is_some());
    assert_eq!(tight([&one, &other_ann, &other_bob]), [true, true, false]);
    come(8, "bob", &mut one);
    assert_eq!(tight([&one, &other_ann, &other_bob]), [true, false, true]);
    drop(one);
    let left = [&other_ann, &other_bob].map(|meter| meter.is_tight().is_some());
    assert_eq!(left, [false, false]);
}
