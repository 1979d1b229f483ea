//! Implements a fake server for tests, with the part of `MongoDB`'s protocol that the driver needs to append events.
//!
//! Source: the `MongoDB` manual, chapter "Wire Protocol": `OP_MSG`, and `OP_QUERY` with `OP_REPLY` for the
//! first handshake.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use mongodb::bson::{Bson, Document, doc};

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;

/// The server's state.
#[derive(Default)]
struct ServerState {
    collections: Vec<String>,
    inserted: Vec<Document>,
    commands: Vec<String>,
    /// Number of events that the server accepts before refusing further events. `None` means no limit.
    refuses: Option<usize>,
    /// True if the server creates an index's collection but then refuses the index.
    refuses_indexes: bool,
}

/// A server on a free port. It runs until the test process exits.
pub(crate) struct FakeServer {
    address: SocketAddr,
    memory: Arc<Mutex<ServerState>>,
}

impl FakeServer {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let memory = Arc::new(Mutex::new(ServerState::default()));
        let shared = Arc::clone(&memory);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let memory = Arc::clone(&shared);
                // The thread finishes when the driver closes the connection.
                thread::spawn(move || while serve(&stream, &memory).is_ok() {});
            }
        });
        Self { address, memory }
    }

    pub(crate) fn url(&self) -> String {
        format!("mongodb://{}/?directConnection=true", self.address)
    }

    /// Returns the inserted events, in order.
    pub(crate) fn inserted(&self) -> Vec<Document> {
        self.memory.lock().unwrap().inserted.clone()
    }

    /// Returns how many `name` commands the server received.
    pub(crate) fn command_count(&self, name: &str) -> usize {
        self.memory.lock().unwrap().commands.iter().filter(|command| *command == name).count()
    }

    /// Returns the number of collections.
    pub(crate) fn collection_count(&self) -> usize {
        self.memory.lock().unwrap().collections.len()
    }

    /// Adds a collection.
    pub(crate) fn add_collection(&self, collection: &str) {
        self.memory.lock().unwrap().collections.push(collection.to_owned());
    }

    pub(crate) fn refuse_indexes(&self) {
        self.memory.lock().unwrap().refuses_indexes = true;
    }

    pub(crate) fn refuse_after(&self, count: usize) {
        self.memory.lock().unwrap().refuses = Some(count);
    }
}

/// Responds to one message.
fn serve(mut stream: &TcpStream, memory: &Mutex<ServerState>) -> io::Result<()> {
    let mut head = [0; 16];
    stream.read_exact(&mut head)?;
    let number = |at: usize| i32::from_le_bytes(head[at..at + 4].try_into().unwrap());
    let (length, request, code) = (number(0), number(4), number(12));
    let mut body = vec![0; usize::try_from(length).unwrap() - head.len()];
    stream.read_exact(&mut body)?;
    let (code, payload) = match code {
        OP_QUERY => {
            let name = body[4..].iter().position(|byte| *byte == 0).unwrap();
            let command = document(&body[4 + name + 1 + 8..]);
            let mut reply = vec![0; 16];
            reply.extend(1_i32.to_le_bytes());
            reply.extend(memory.lock().unwrap().answer(&command, &[]).to_vec().unwrap());
            (OP_REPLY, reply)
        }
        OP_MSG => {
            let (command, documents) = sections(&body[4..]);
            let mut reply = vec![0; 5];
            reply.extend(memory.lock().unwrap().answer(&command, &documents).to_vec().unwrap());
            (OP_MSG, reply)
        }
        other => panic!("operation {other}"),
    };
    let length = i32::try_from(head.len() + payload.len()).unwrap();
    let mut message: Vec<u8> =
        [length, 0, request, code].iter().flat_map(|number| number.to_le_bytes()).collect();
    message.extend(payload);
    stream.write_all(&message)
}

/// Parses a message's command and the documents in its sequences.
fn sections(mut bytes: &[u8]) -> (Document, Vec<Document>) {
    let (mut command, mut documents) = (Document::new(), Vec::new());
    while let Some((kind, rest)) = bytes.split_first() {
        let size = size(rest);
        let section = &rest[..size];
        if *kind == 0 {
            command = document(section);
        } else {
            let name = section[4..].iter().position(|byte| *byte == 0).unwrap();
            let mut sequence = &section[4 + name + 1..];
            while !sequence.is_empty() {
                documents.push(document(sequence));
                sequence = &sequence[self::size(sequence)..];
            }
        }
        bytes = &rest[size..];
    }
    (command, documents)
}

fn size(bytes: &[u8]) -> usize {
    usize::try_from(i32::from_le_bytes(bytes[..4].try_into().unwrap())).unwrap()
}

fn document(bytes: &[u8]) -> Document {
    Document::from_reader(&bytes[..size(bytes)]).unwrap()
}

impl ServerState {
    fn answer(&mut self, command: &Document, documents: &[Document]) -> Document {
        let (name, value) = command.iter().next().unwrap();
        self.commands.push(name.clone());
        match name.as_str() {
            "hello" | "isMaster" | "ismaster" => doc! {
                "ismaster": true, "isWritablePrimary": true, "helloOk": true, "maxBsonObjectSize": 16_777_216,
                "maxMessageSizeBytes": 48_000_000, "maxWriteBatchSize": 100_000, "minWireVersion": 0,
                "maxWireVersion": 21, "readOnly": false, "ok": 1.0,
            },
            "buildInfo" => doc! { "version": "7.0.0", "ok": 1.0 },
            "listCollections" => {
                let listed = self.collections.iter().map(|name| doc! { "name": name, "type": "collection" });
                let batch: Vec<Bson> = listed.map(Bson::from).collect();
                doc! { "cursor": { "id": 0_i64, "ns": "pgfresh_bench_documents.$cmd.listCollections", "firstBatch": batch }, "ok": 1.0 }
            }
            "createIndexes" => {
                self.collections.push(value.as_str().unwrap().to_owned());
                if self.refuses_indexes {
                    return doc! { "ok": 0.0, "code": 13, "errmsg": "no rights", "codeName": "Unauthorized" };
                }
                doc! { "ok": 1.0 }
            }
            "insert" if self.refuses.is_some_and(|count| self.inserted.len() >= count) => {
                doc! { "ok": 0.0, "code": 14_031, "errmsg": "no room left", "codeName": "OutOfDiskSpace" }
            }
            "insert" => {
                let listed = command.get_array("documents").into_iter().flatten();
                let listed = listed.map(|document| document.as_document().unwrap().clone());
                let before = self.inserted.len();
                self.inserted.extend(listed.chain(documents.iter().cloned()));
                doc! { "n": i32::try_from(self.inserted.len() - before).unwrap(), "ok": 1.0 }
            }
            "dropDatabase" => {
                self.collections.clear();
                doc! { "ok": 1.0 }
            }
            "endSessions" => doc! { "ok": 1.0 },
            other => panic!("command {other}"),
        }
    }
}
