SHELL := /bin/bash
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help install build demo demo-slow check test lint docs release-files clean

help:
	@echo "make install the binary into ~/.local/bin or PREFIX/bin, and with PROJECT=FOLDER the client for its language"
	@echo "make build   the binary, optimised"
	@echo "make demo    one test suite with five ways of cleaning up, timed, in three minutes"
	@echo "make demo-slow  the demo on a simulated slow disk"
	@echo "make check   formatting, clippy, unit tests and each command once, in three minutes"
	@echo "make test    lint, all tests, the clients and the examples"
	@echo "make lint    formatting, clippy, the words of the documentation, scripts, licences, workflows"
	@echo "make release-files  every file of a release, in target/release-files"
	@echo "make docs    the documentation as a site, in target/site; its links are checked"
	@echo "make clean   remove everything that was built or installed here"

install:
	@scripts/install

build:
	@scripts/prepare build
	cargo build --locked --release

demo:
	@scripts/demo

demo-slow:
	@scripts/demo slow

# A shell's background and nohup ignore signals; that is meant for make, not for what the tests interrupt.
check:
	@env --default-signal=INT,QUIT,HUP scripts/check

test:
	@env --default-signal=INT,QUIT,HUP scripts/test

# The scripts that test the binary PGFRESH, the longest first. They often wait, so scripts/test runs three at once. They
# don't get make's flags, because cargo would look for make's job server.
scripts := test-script-clients test-compiled-clients test-http test-faults test-demo test-migration-tools check-recipes \
	test-pages test-install test-devcontainer test-deploy
.PHONY: binary-scripts $(scripts)
binary-scripts: $(scripts)
$(scripts):
	@env -u MAKEFLAGS -u MFLAGS scripts/$@ $(PGFRESH)

lint:
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets $(features) -- -D warnings
	cargo test --locked --quiet --workspace $(features) --test prose
	scripts/lint-prose
	@if command -v shellcheck >/dev/null; then echo shellcheck && shellcheck -x $$(grep -d skip -lE '^#!.*sh$$' scripts/*) scripts/common packaging/install.sh .ci/run; fi
	@scripts/lint-release

docs:
	@scripts/docs

release-files:
	@scripts/release --dry-run

clean:
	cargo clean
	rm -rf clients/node/node_modules examples/*/node_modules peers/node/node_modules
	@source scripts/common && rm -rf "$$outside"
