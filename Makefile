# armlet: `make help` lists what there is. Everything that is downloaded or built lies below target/ (or CARGO_TARGET_DIR).

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

# demo, test, vm and campaign run this one: release code without the minutes that fat LTO costs. `make build` is the real one.
VM_PROFILE ?= qemu
# bench measures what people get, unless told otherwise.
BENCH_PROFILE := $(if $(filter command line environment,$(origin VM_PROFILE)),$(VM_PROFILE),release)
# What `make deb` packs, and for which machines.
DEB_PROFILE ?= release
DEB_ARCHES ?= aarch64 x86_64
# A seed makes the random tests repeatable; a longer campaign finds more.
CAMPAIGN_SECONDS ?= 3600

# Where cargo builds is where everything else goes too: CARGO_TARGET_DIR, or target here. All scripts follow it.
export CARGO_TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
target := $(CARGO_TARGET_DIR)

# Where the guests' tests find what they try.
binaries = ARMLET_BINARY=$$(cat $(target)/vm-binary) ARMLET_OTHER_BINARY=$$(cat $(target)/other-binary)

say = @printf '\033[1m==>\033[0m %s\n'

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: setup
setup: test-setup setup-x86-64 ## install and download all that the other targets need (they do it themselves when it is missing)
	@tests/check.sh tools

# What the guests need, and what the tests in them need beside it: packed once, before tests run side by side.
.PHONY: guest-setup test-setup test-setup-x86-64
guest-setup:
	@cross/tools.sh
	@tests/vm/prepare.sh bare >/dev/null
	@images/pack.sh busybox redis >/dev/null
test-setup: guest-setup
	@images/pack.sh busybox-arm32 curl >/dev/null
test-setup-x86-64:
	@cross/tools.sh
	@tests/vm/prepare.sh bare >/dev/null
	@images/pack.sh busybox redis curl >/dev/null

# Everything below a rule with this is done for the other architecture.
.PHONY: setup-x86-64
setup-x86-64: export ARMLET_ARCH := x86_64
setup-x86-64: test-setup-x86-64

.PHONY: build
build: ## the static binary as released, for ARMLET_ARCH: aarch64 or x86_64 (fat LTO: some minutes)
	@cross/build.sh release
	@cp "$$(cross/licences.sh)" "$(target)/$${ARMLET_ARCH:-aarch64}-unknown-linux-musl/release/LICENCES"

.PHONY: deb
deb: ## Debian packages for arm64 and amd64, below target/deb (DEB_ARCHES, DEB_PROFILE)
	@mkdir -p $(target)/deb
	@for arch in $(DEB_ARCHES); do ARMLET_ARCH=$$arch cross/deb.sh $(DEB_PROFILE); done | tee $(target)/deb/built
	@if command -v lintian >/dev/null; then lintian --allow-root --fail-on error $$(cat $(target)/deb/built); else echo "lintian: not here, not asked"; fi

.PHONY: vm-binary
vm-binary:
	@cross/build.sh $(VM_PROFILE) >$(target)/vm-binary

# Another version of it, to upgrade to and back: built first, since both have the same name for cargo.
.PHONY: other-binary
other-binary:
	@cross/other.sh $(VM_PROFILE) >$(target)/other-binary

.PHONY: demo
demo: guest-setup vm-binary ## boot a node in QEMU, run a pod on it, show it working, power off
	@ARMLET_BINARY=$$(cat $(target)/vm-binary) cargo run --quiet --locked -p armlet-vm --bin demo

.PHONY: vm
vm: guest-setup vm-binary ## an interactive node in QEMU; leave it with Ctrl-A x
	@ARMLET_BINARY=$$(cat $(target)/vm-binary) tests/vm/interactive.sh

.PHONY: check
check: ## format, lints, licences and sources of dependencies
	@cross/tools.sh
	@tests/check.sh

.PHONY: test
# A Debian with systemd takes minutes to boot and to be looked at: it belongs to the campaign.
test: test-setup ## every ring of tests: on this machine, then in the guest
	$(say) "tests on this machine"
	@cargo test --workspace --locked
	@$(MAKE) other-binary
	@$(MAKE) vm-binary
	$(say) "tests in the guest"
	@$(binaries) cargo test --locked --test qemu -- --skip debian::
	@$(MAKE) test-x86-64

.PHONY: test-x86-64
test-x86-64: export ARMLET_ARCH := x86_64
test-x86-64: test-setup-x86-64 ## a choice of the tests in the guest, on x86-64
	@cross/build.sh $(VM_PROFILE) >$(target)/vm-binary-x86_64
	$(say) "tests in the guest, x86-64"
	@ARMLET_BINARY=$$(cat $(target)/vm-binary-x86_64) cargo test --locked --test qemu -- --exact $$(grep -v '^#' tests/qemu/x86_64.list)

.PHONY: campaign
campaign: test-setup ## the long tests in full: CAMPAIGN_SECONDS of them
	@$(MAKE) other-binary
	@$(MAKE) vm-binary
	@$(binaries) ARMLET_CAMPAIGN_SECONDS=$(CAMPAIGN_SECONDS) PROPTEST_CASES=20000 cargo test --workspace --locked
	@$(binaries) ARMLET_CAMPAIGN_SECONDS=$(CAMPAIGN_SECONDS) cargo test --locked --test qemu
	@cross/container.sh

.PHONY: bench
bench: guest-setup ## measure speed and size beside crun and podman, in one guest: BENCH_ROUNDS of each, at least 20 for a median
	@cross/build.sh $(BENCH_PROFILE) >$(target)/bench-binary
	@ARMLET_BINARY=$$(cat $(target)/bench-binary) cargo run --quiet --locked -p armlet-vm --bin bench

.PHONY: clean
clean: ## remove all that was built and downloaded
	@rm -rf $(target)
