use proptest::prelude::*;

use super::*;

/// Statements of each kind. Some of them fail in certain states.
const STATEMENTS: [&str; 14] = [
    "SELECT",
    "ROWS 3 50",
    "ROWS 1 3000",
    "fail",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "SAVEPOINT a",
    "ROLLBACK TO a",
    "LOCK TABLE t",
    "DISCARD ALL",
    "INSERT; COMMIT; DELETE",
    "BEGIN; fail",
    "SET CONSTRAINTS ALL DEFERRED",
];

fn any_turn() -> impl Strategy<Value = Vec<u8>> {
    let sql = || prop::sample::select(&STATEMENTS[..]);
    let names = prop::sample::select(&["", "a", "another name"][..]);
    let extended = prop::collection::vec((sql(), names, 0_usize..300), 1..4).prop_map(|statements| {
        let each =
            statements.into_iter().filter(|(sql, ..)| !sql.contains(';')).flat_map(|(sql, name, value)| {
                let close = encode(b'C', format!("S{name}\0").as_bytes());
                [close, parse(name, sql), bind(name, name, value), encode(b'D', b"P\0"), execute(name)]
                    .concat()
            });
        each.chain(sync()).collect::<Vec<u8>>()
    });
    let copy = (any::<bool>(), 0_usize..9000).prop_map(|(ends, length)| {
        let data = encode(b'd', &vec![b'x'; length]);
        let end = if ends { encode(b'c', b"") } else { encode(b'f', b"no\0") };
        [query(b"COPY t FROM STDIN"), data, end].concat()
    });
    prop_oneof![4 => sql().prop_map(|sql| query(sql.as_bytes())), 2 => extended, 1 => copy]
}

fn any_cuts() -> impl Strategy<Value = Cuts> {
    prop_oneof![
        Just(Cuts::None),
        prop::collection::vec(1_usize..60, 1..4).prop_map(Cuts::Into),
        prop::collection::vec(1_usize..5000, 1..4).prop_map(Cuts::Into),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn session_result_is_independent_of_chunk_boundaries(
        turns in prop::collection::vec(any_turn(), 1..10),
        up in any_cuts(),
        down in any_cuts(),
        patient in any::<bool>(),
        small in any::<bool>(),
    ) {
        // In a failed transaction, a COPY doesn't start, so the server treats the COPY's data as ordinary messages.
        let sent = turns.concat();
        let expected = run_without_sockets(&sent);
        run(async {
            let mut fixture = Fixture::new(small.then_some(1));
            assert_eq!(fixture.play(&sent, Pieces { up: &up, down: &down, patient }, &expected).await, expected);
            assert!(sys::is_idle_socket(&duplicate(&fixture.client)));
            let Drive { session, up, down, .. } = &fixture.drive;
            assert!(session.is_idle() && up.capacity() == 0 && down.capacity() == 0);
        });
    }
}
