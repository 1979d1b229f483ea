use std::fs;
use std::os::unix::fs::symlink;

use proptest::prelude::*;

use super::*;

/// Creates a repository with these files.
fn project(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (file, text) in [(".git/HEAD", "")].iter().chain(files) {
        let path = folder.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    folder
}

fn search(files: &[(&str, &str)]) -> Search {
    let folder = project(files);
    find(folder.path(), &Variables::read(&folder.path().join(".env")))
}

#[track_caller]
fn service(files: &[(&str, &str)]) -> DatabaseService {
    let search = search(files);
    assert_eq!(search.problems, [""; 0]);
    search.service.expect("a service")
}

fn taken(service: &DatabaseService) -> Vec<(&str, &str)> {
    let taken = service.settings.iter().filter(|setting| setting.decision == Decision::Taken);
    taken.map(|setting| (setting.name.as_str(), setting.value.as_str())).collect()
}

fn paths(service: &DatabaseService) -> Vec<&str> {
    service.scripts.iter().map(|script| script.path.as_str()).collect()
}

/// Equivalent ways to write an image. The lists below do the same for variables, settings and scripts.
const IMAGES: [&str; 6] = [
    "    image: postgres:16-alpine\n",
    "    image: \"postgres:${TAG}\"\n",
    "    image: postgres:${NONE:-${TAG:-15}}\n",
    "    build: { context: ., dockerfile: db.Dockerfile }\n",
    "    extends: { file: common.yml, service: base }\n",
    "    extends:\n      service: other\n",
];
const ENVIRONMENTS: [&str; 6] = [
    "    environment:\n      POSTGRES_USER: shop\n      POSTGRES_DB: \"sales\"\n      POSTGRES_PASSWORD: ${SECRET}\n",
    "    environment:\n    - POSTGRES_USER=shop\n    - POSTGRES_DB=sales\n    - POSTGRES_PASSWORD=x\n",
    "    environment: &e { POSTGRES_USER: shop, POSTGRES_DB: sales, POSTGRES_PASSWORD: x }\n",
    "    environment: { <<: *common, POSTGRES_DB: sales }\n",
    "    env_file: db.env\n",
    "    env_file: [{ path: ./db.env, required: true }]\n",
];
const COMMANDS: [&str; 4] = [
    "    command: postgres -c wal_level=logical -c shared_buffers=1GB -c 'work_mem=64MB' -c fsync=off\n",
    "    command: [postgres, -c, wal_level=logical, -cshared_buffers=1GB, --work-mem=64MB, -F]\n",
    "    command:\n    - -c\n    - wal_level=logical\n    - -S\n    - 64MB\n    - -B\n    - 1GB\n",
    "    command: >\n      docker-entrypoint.sh postgres\n      -c wal_level=logical\n      --work_mem=64MB\n",
];
const VOLUMES: [&str; 5] = [
    "    volumes: [\"data:/var/lib/postgresql/data\", ./db/init:/docker-entrypoint-initdb.d:ro]\n",
    "    volumes: [\"${PWD}/db/init:/docker-entrypoint-initdb.d\"]\n",
    "    volumes:\n    - { type: bind, source: ./db/init, target: /docker-entrypoint-initdb.d }\n",
    "    volumes:\n    - ./db/init/1.sql:/docker-entrypoint-initdb.d/1.sql\n    - ./db/init/2.sql:/docker-entrypoint-initdb.d/2.sql\n",
    "    volumes:\n    - ./db/init/2.sql:/docker-entrypoint-initdb.d/02.sql\n    - ./db/init/1.sql:/docker-entrypoint-initdb.d/01.sql\n",
];

/// Generates a service in each notation that Compose allows.
fn variants() -> impl Strategy<Value = Vec<(String, String)>> {
    let file = prop::sample::select(NAMES.to_vec());
    let [image, environment, command, volumes] =
        [&IMAGES[..], &ENVIRONMENTS, &COMMANDS, &VOLUMES].map(prop::sample::select);
    (file, image, environment, command, volumes, any::<bool>()).prop_flat_map(
        |(file, image, environment, command, volumes, is_last)| {
            Just(vec![image, environment, command, volumes]).prop_shuffle().prop_map(move |keys| {
                let web = "  web:\n    image: nginx\n    environment: [POSTGRES_USER=other]\n";
                let other = "  other:\n    image: postgres:16\n";
                let database = format!("  database:\n{}", keys.concat());
                let services = if is_last {
                    format!("{web}{database}{other}")
                } else {
                    format!("{database}{web}{other}")
                };
                let common =
                    "x-common: &common\n  POSTGRES_USER: shop\n  POSTGRES_PASSWORD: x\n  POSTGRES_DB: no\n";
                let text = format!("{common}services:\n{services}volumes:\n  data: {{}}\n");
                [
                    (file, text.as_str()),
                    (".env", "TAG=16\nSECRET=x\nDATABASE_URL=postgres://shop@database/sales\n"),
                    ("db.Dockerfile", "ARG V=16\nFROM postgres:$V AS base\nFROM base\nRUN true\n"),
                    (
                        "common.yml",
                        "services:\n  base:\n    image: postgres:16.3\n    environment: [POSTGRES_DB=no]\n",
                    ),
                    ("db.env", "POSTGRES_USER=shop\nPOSTGRES_DB='sales'\nPOSTGRES_PASSWORD=\"x\"\n"),
                    ("db/init/1.sql", ""),
                    ("db/init/2.sql", ""),
                    ("db/init/notes.txt", ""),
                ]
                .map(|(name, text)| (name.to_owned(), text.to_owned()))
                .into()
            })
        },
    )
}

proptest! {
    #[test]
    fn every_spelling_of_a_service_means_the_same(files in variants()) {
        let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
        let service = service(&files);
        prop_assert_eq!((service.name.as_str(), service.file.as_str()), ("database", files[0].0));
        prop_assert_eq!(service.image.major, Some(16));
        prop_assert_eq!(service.user.as_deref(), Some("shop"));
        prop_assert_eq!(service.database.as_deref(), Some("sales"));
        prop_assert!(service.has_password);
        let mut settings = taken(&service);
        settings.sort_unstable();
        prop_assert_eq!(settings, [("wal_level", "logical"), ("work_mem", "64MB")]);
        prop_assert_eq!(paths(&service), ["db/init/1.sql", "db/init/2.sql"]);
        prop_assert_eq!(&service.others, &["other"]);
        prop_assert_eq!(&service.notes, &[""; 0]);
    }

    #[test]
    fn any_compose_file_is_read_without_panic(
        lines in prop::collection::vec(prop::sample::select(vec![
            "services:", "  db:", "    image: postgres:16", "    image: [x]", "    command: -c", "    command: [-c, {a: b}]", "    extends: db",
            "    extends: { file: compose.yaml, service: db }", "include: [compose.yaml]", "include: { path: [x, compose.yaml] }",
            "    volumes: [./a:/docker-entrypoint-initdb.d, .:/docker-entrypoint-initdb.d/x.sql, :, '']", "    environment: text",
            "    environment: [=, A, A=]", "    build: .", "    build: { args: [V], dockerfile_inline: 'FROM $V' }", "    env_file: [., {}]",
            "    environment: { POSTGRES_INITDB_ARGS: '-E --locale -c a' }", "  ? [a]", "---", "    <<: [*a, *b]", "    x: &a", "    configs: [{source: a}]",
        ]), 0..14),
    ) {
        let text = lines.join("\n");
        search(&[("compose.yaml", &text), ("Dockerfile", "FROM\nARG\nCOPY a\nFROM postgres:16\n")]);
    }
}

#[test]
fn override_file_replaces_keys_and_adds_variables() {
    let service = service(&[
        (
            "docker-compose.yml",
            "services:\n  db:\n    image: postgres:15\n    environment: {TZ: Asia/Tokyo, POSTGRES_USER: a}\n",
        ),
        (
            "docker-compose.override.yml",
            "services:\n  db:\n    image: postgis/postgis:16-3.4\n    environment: [POSTGRES_USER=b]\n",
        ),
    ]);
    assert_eq!((service.image.major, service.user.as_deref()), (Some(16), Some("b")));
    assert_eq!(taken(&service), [("timezone", "Asia/Tokyo")]);
    assert_eq!(service.image.extensions[0].name, "postgis");
}

#[test]
fn service_of_database_url_precedes_tests_and_order() {
    let compose = "services:\n  one: {image: postgres:14}\n  two_test: {image: postgres:15}\n  three: {image: postgres:16}\n";
    let name = |env: &str| service(&[("compose.yml", compose), (".env", env)]).name;
    assert_eq!(name("DATABASE_URL=postgres://u@three:5432/x\n"), "three");
    assert_eq!(name("DATABASE_URL=postgres://u@localhost/x\n"), "two_test");
    let service = service(&[("compose.yml", compose)]);
    assert_eq!(service.others, ["one", "three"]);
}

#[test]
fn services_of_first_format_are_found() {
    let compose = "web:\n  image: nginx\ndb:\n  image: postgres:14\n  environment: [POSTGRES_DB=shop]\n";
    let service = service(&[("docker-compose.yml", compose)]);
    assert_eq!((service.name.as_str(), service.database.as_deref()), ("db", Some("shop")));
}

#[test]
fn port_and_database_of_url_identify_service() {
    let compose = "services:\n  orders-db: {image: postgres:15, ports: ['5433:5432'], environment: [POSTGRES_DB=orders]}\n  \
        users-db: {image: postgres:16, ports: [{target: 5432, published: 5434}], environment: [POSTGRES_DB=users]}\n  \
        test: {image: postgres:17, ports: ['127.0.0.1:5432:5432']}\n";
    for (url, name) in [
        ("localhost:5434/x", "users-db"),
        ("localhost:5433/users", "orders-db"),
        ("localhost:9/users", "users-db"),
        ("localhost/users", "test"),
        ("localhost:9/x", "test"),
    ] {
        let files = [
            ("docker-compose.yml", compose),
            ("services/users/.env", &format!("DATABASE_URL=postgres://u@{url}\n")),
        ];
        let folder = project(&files);
        let below = folder.path().join("services/users");
        let service = find(&below, &Variables::read(&below.join(".env"))).service.unwrap();
        assert_eq!(service.name, name, "{url}");
    }
}

#[test]
fn test_in_a_name_is_a_whole_word() {
    for name in ["test", "db-test", "test_db", "testdb", "pgtest", "Tests", "docker-compose.test.yml"] {
        assert!(is_for_tests(name), "{name}");
    }
    for name in ["latest-cache", "contest", "attestation", "testimonials", "db", ""] {
        assert!(!is_for_tests(name), "{name}");
    }
}

#[test]
fn settings_without_use_in_tests_are_left_out() {
    let command = "-c port=5433 -c max_connections=20 -c log_statement=all -c ssl=on -c archive_mode=on -c hba_file=/x \
        -c wal_buffers=-1 -c unix_socket_directories=/tmp -c wal_level=minimal -c wal_level=logical -c bad-name=x -c no";
    let service = service(&[(
        "compose.yml",
        &format!("services:\n  db:\n    image: postgres:16\n    command: {command}\n"),
    )]);
    assert_eq!(taken(&service), [("wal_level", "logical"), ("bad_name", "x")]);
    assert_eq!(service.notes, ["command: \"-c\" has no value"]);
    let other =
        "services:\n  db:\n    image: postgres:16\n    command: sh -c 'postgres -c wal_level=logical'\n";
    let service = super::tests::service(&[("compose.yml", other)]);
    assert_eq!((taken(&service), service.notes.len()), (Vec::new(), 1));
}

#[test]
fn initdb_arguments_become_options_of_database() {
    let read = |arguments: &str| {
        let text = format!(
            "services:\n  db:\n    image: postgres\n    environment:\n      POSTGRES_INITDB_ARGS: \"{arguments}\"\n"
        );
        let service = service(&[("compose.yml", &text)]);
        (
            service.initdb.database_options.clone(),
            taken(&service).iter().map(|setting| format!("{setting:?}")).collect::<Vec<_>>().concat(),
            service.notes.len(),
        )
    };
    let nothing = || (String::new(), String::new(), 0);
    assert_eq!(read(""), nothing());
    assert_eq!(read("--encoding=UTF8 --data-checksums --auth-host=scram-sha-256 --no-sync"), nothing());
    assert_eq!(read("-E UTF8 --locale C").0, "LOCALE 'C'");
    assert_eq!(read("--encoding=latin1 --lc-collate=C").0, "ENCODING 'LATIN1' LOCALE 'C'");
    assert_eq!(
        read("--locale-provider=icu --icu-locale=de-DE").0,
        "LOCALE_PROVIDER icu ICU_LOCALE 'de-DE' LOCALE 'C.UTF-8'"
    );
    assert_eq!(read("--locale=de_DE.UTF-8 --wal-segsize=64").2, 2);
    assert_eq!(
        read("-T german -c work_mem=1MB").1,
        "(\"default_text_search_config\", \"pg_catalog.german\")(\"work_mem\", \"1MB\")"
    );
    assert_eq!(read("--icu-locale=x';DROP").0, "", "no quote gets into a statement");
}

#[test]
fn scripts_run_in_order_of_container_names() {
    let compose = "services:\n  db:\n    build: db\n    volumes:\n    - ./z.sh:/docker-entrypoint-initdb.d/1.sh\n    - ./none.sql:/docker-entrypoint-initdb.d/3.sql\n    - ./d.sql.gz:/docker-entrypoint-initdb.d/4.sql.gz\n";
    let service = service(&[
        ("docker-compose.yaml", compose),
        (
            "db/Dockerfile",
            "from postgres:17\nCOPY --chown=postgres \\\n a.sql /docker-entrypoint-initdb.d/\nADD b.sql /docker-entrypoint-initdb.d/0.sql\n",
        ),
        ("db/a.sql", ""),
        ("db/b.sql", ""),
        ("z.sh", ""),
        ("d.sql.gz", ""),
    ]);
    assert_eq!(service.image.major, Some(17));
    assert_eq!(paths(&service), ["db/b.sql", "z.sh", "d.sql.gz", "db/a.sql"]);
    assert_eq!(service.notes, ["none.sql: there is no such script"]);
}

#[test]
fn file_above_is_found_up_to_repository() {
    let folder = project(&[
        (
            "compose.yaml",
            "services:\n  db:\n    image: postgres:16\n    volumes: [./init:/docker-entrypoint-initdb.d]\n",
        ),
        ("init/1.sql", ""),
        ("apps/api/go.mod", ""),
    ]);
    let below = folder.path().join("apps/api");
    let service = find(&below, &Variables::default()).service.unwrap();
    assert_eq!((service.file.as_str(), paths(&service)), ("../../compose.yaml", vec!["../../init/1.sql"]));
    fs::create_dir(below.join(".git")).unwrap();
    assert!(find(&below, &Variables::default()).service.is_none(), "the repository begins here");
}

#[test]
fn unreadable_files_are_reported_and_others_read() {
    let folder = project(&[
        ("docker-compose.yml", "services: [\n"),
        ("docker-compose.dev.yml", "services:\n  caf\u{e9}:\n    image: postgres:16\n"),
    ]);
    fs::write(folder.path().join("compose.yaml"), vec![b'#'; 2 << 20]).unwrap();
    symlink("compose.yml", folder.path().join("compose.yml")).unwrap();
    fs::write(folder.path().join("docker-compose.yaml"), b"services:\n  caf\xe9:\n    image: redis\n")
        .unwrap();
    let search = find(folder.path(), &Variables::default());
    assert_eq!(search.service.unwrap().file, "docker-compose.dev.yml");
    let begins = [
        "could not read \"compose.yaml\": it has more than 1 MB",
        "could not read \"compose.yml\": ",
        "could not read \"docker-compose.yml\": line ",
    ];
    assert_eq!(search.problems.len(), 3, "{:?}", search.problems);
    for (problem, begin) in search.problems.iter().zip(begins) {
        assert!(problem.starts_with(begin), "{problem}");
    }
}

/// Without deduplication, each of the ten lines would read the file and its ten lines again.
#[test]
fn included_and_extended_files_are_read_once() {
    let again = "  - compose.yaml\n".repeat(10);
    let extending: Vec<_> = (0..1000)
        .map(|service| format!("  s{service}:\n    extends: {{ file: none.yml, service: base }}\n"))
        .collect();
    let extending = extending.concat();
    let search = search(&[(
        "compose.yaml",
        &format!("include:\n{again}services:\n{extending}  db:\n    image: postgres:16\n"),
    )]);
    assert_eq!(search.service.unwrap().image.major, Some(16));
    assert_eq!(search.problems.len(), 1, "{:?}", search.problems);
}

#[test]
fn services_of_many_files_are_refused() {
    let many: Vec<_> =
        (0..1000).map(|service| format!("  s{service}:\n    env_file: {service}.env\n")).collect();
    let many = many.concat();
    let search = search(&[("compose.yaml", &format!("services:\n{many}  db:\n    image: postgres:16\n"))]);
    assert_eq!(search.service.unwrap().image.major, Some(16));
    assert_eq!(search.problems, ["could not read \"199.env\": the services need more than 200 files"]);
}

/// pgfresh.toml is committed to the repository, but `.env` isn't, so values from `.env` must not get into it.
#[test]
fn secrets_in_settings_stay_out() {
    let service = service(&[
        (".env", "JWT=hush\n"),
        (
            "compose.yaml",
            "services:\n  db:\n    image: postgres:16\n    command: -c app.jwt_secret=$JWT -c app.url=postgres://u:hush@h/d \
             -c ssl_passphrase_command='echo hush' -c primary_conninfo=password=hush -c app.lang=de \
             -c password_encryption=md5\n",
        ),
    ]);
    assert_eq!(taken(&service), [("app.lang", "de"), ("password_encryption", "md5")]);
    assert!(!service.settings.iter().any(|setting| setting.value.contains("hush")), "{:?}", service.settings);
}
