# One makefile for everything; what it builds lands in $(BUILD). `make help` lists targets.

comma := ,
space := $(subst ,, )

BUILD ?= build
PREFIX ?= /usr/local
# Distributions have a directory for each architecture.
LIBDIR ?= $(PREFIX)/lib
DESTDIR ?=
VERSION := $(shell cat VERSION)
CC ?= gcc
ifeq ($(origin CC),default)
CC := gcc
endif
PYTHON ?= /usr/bin/python3
FUZZ_SECONDS ?= 60
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')

# ---- Variants ----
SAN ?=
OPT ?= -O2
ifeq ($(SAN),address)
OUT := $(BUILD)/asan
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
else ifeq ($(SAN),thread)
OUT := $(BUILD)/tsan
SANFLAGS := -fsanitize=thread -fno-omit-frame-pointer
else ifeq ($(SAN),)
OUT := $(BUILD)
else
$(error SAN is address, thread or empty)
endif

# ---- CUDA ----
CUDA ?= auto
NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_INCLUDE ?= $(patsubst %/bin/,%/include,$(dir $(realpath $(NVCC))))
ifeq ($(CUDA),auto)
WITH_CUDA := $(if $(and $(NVCC),$(wildcard kernels/cuda/*.cu),$(if $(SAN),,yes)),yes)
else ifeq ($(CUDA),yes)
WITH_CUDA := yes
else
WITH_CUDA :=
endif
# A short list builds fast; `CUDA_ARCHS=all` is every architecture that this nvcc knows from sm_75 on.
CUDA_ARCHS ?= 90
ifeq ($(CUDA_ARCHS),all)
ARCHS := $(shell $(NVCC) --list-gpu-arch | sed 's/compute_//' | awk '$$1 >= 75' | sort -n)
else
ARCHS := $(subst $(comma),$(space),$(CUDA_ARCHS))
endif
CUDA_GENCODE = $(foreach a,$(ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
    -gencode arch=compute_$(lastword $(ARCHS)),code=compute_$(lastword $(ARCHS))

# ---- Libraries ----
# DEPS_PREFIX: a directory into which packages were unpacked, for hosts where none can be installed.
DEPS_PREFIX ?=
ifneq ($(DEPS_PREFIX),)
MULTIARCH := $(shell $(CC) -print-multiarch)
DEPS_PREFIX_ABS := $(abspath $(DEPS_PREFIX))
DEPS_CFLAGS := -isystem $(DEPS_PREFIX_ABS)/usr/include
DEPS_LIBS := $(foreach d,usr/lib/$(MULTIARCH) lib/$(MULTIARCH),-L$(DEPS_PREFIX_ABS)/$(d) -Wl$(comma)-rpath$(comma)$(DEPS_PREFIX_ABS)/$(d))
endif
# msgpack-c is called msgpack up to version 5, msgpack-c from 6.
PKG_CONFIG ?= pkg-config
MSGPACK := $(shell $(PKG_CONFIG) --exists msgpack-c 2>/dev/null && echo msgpack-c || echo msgpack)
ifneq ($(DEPS_PREFIX),)
# Such a host need not have pkg-config; the names of libraries are what it would say.
LIB_msgpack := msgpackc
LIB_msgpack-c := msgpack-c
LIB_libevent_core := event_core
LIB_libevent_extra := event_extra
LIB_libevent_pthreads := event_pthreads
LIB_libsystemd := systemd
LIB_openssl := ssl -lcrypto
pkg_cflags = $(DEPS_CFLAGS)
pkg_libs = $(DEPS_LIBS) $(foreach p,$(1),-l$(or $(LIB_$(p)),$(p)))
else
pkg_cflags = $(shell $(PKG_CONFIG) --cflags $(1) 2>/dev/null)
pkg_libs = $(shell $(PKG_CONFIG) --libs $(1) 2>/dev/null)
endif
DAEMON_PKGS := $(MSGPACK) libevent_extra libevent_core libevent_pthreads jansson inih libsystemd openssl
CLIENT_PKGS := $(MSGPACK) openssl
CTL_PKGS := jansson inih

# ---- Flags ----
WARN := -Wall -Wextra -Wshadow -Wconversion $(if $(WERROR),-Werror)
INCLUDES := -Iproto/include -Ikernels/include -Iclient/include -I.
CPPFLAGS += -D_GNU_SOURCE -DXOP_VERSION='"$(VERSION)"' -DXOPD_LIBDIR='"$(PREFIX)/lib/xopd"'
CFLAGS_ALL = -std=gnu17 $(OPT) -g -fPIC $(WARN) $(SANFLAGS) $(INCLUDES) $(CPPFLAGS) \
    $(call pkg_cflags,$(DAEMON_PKGS) cmocka) $(CFLAGS)
# Results must not depend on how a compiler contracts a*b+c, and errno is nobody's concern here.
KERNEL_CFLAGS := -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math -fvisibility=hidden
# Kernels are C in C++'s clothes: without exceptions and guarded statics they need no C++ library.
NVCCFLAGS := -std=c++17 -O3 -cudart static \
    -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-fno-exceptions,-fno-threadsafe-statics \
    --expt-relaxed-constexpr -fmad=false $(INCLUDES) -D_GNU_SOURCE
LDFLAGS_ALL = $(SANFLAGS) $(LDFLAGS)
# Where xopctl looks for its library before the system's places; packages want none.
CTL_RPATH ?= $$ORIGIN:$$ORIGIN/../lib

# Objects depend on the flags they were made with.
FLAGS_STAMP := $(OUT)/flags
FLAGS_TEXT := $(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(KERNEL_CFLAGS) $(NVCC) $(NVCCFLAGS) $(CUDA_GENCODE)
$(shell mkdir -p $(OUT); \
    printf '%s' '$(subst ','\'',$(FLAGS_TEXT))' | cmp -s - $(FLAGS_STAMP) || \
    printf '%s' '$(subst ','\'',$(FLAGS_TEXT))' > $(FLAGS_STAMP))

# ---- Sources ----
PROTO_SRC := $(wildcard proto/*.c)
CLIENT_SRC := $(wildcard client/lib/*.c)
# What a worker asks of a library, xopctl asks of it first.
CTL_SRC := $(wildcard client/xopctl/*.c) daemon/worker/library.c daemon/worker/declaration.c
REFERENCE_SRC := $(wildcard client/reference/*.c)
SHARED_SRC := $(wildcard daemon/shared/*.c)
DAEMON_SRC := $(wildcard daemon/*.c daemon/front/*.c daemon/worker/*.c) $(SHARED_SRC)
KERNEL_SRC := $(wildcard kernels/*.c)
CPU_SRC := $(KERNEL_SRC) $(wildcard kernels/cpu/*.c)
CUDA_SRC := $(KERNEL_SRC) $(wildcard kernels/cuda/*.cu kernels/cuda/*.c)
BROKEN_SHARED := $(filter-out $(wildcard tests/broken/broken_*.c),$(wildcard tests/broken/*.c))
BROKEN := $(patsubst tests/broken/%.c,$(OUT)/ops-broken/%-cpu.so,$(wildcard tests/broken/broken_*.c)) \
    $(if $(WITH_CUDA),$(patsubst tests/broken/%.cu,$(OUT)/ops-broken/%-cuda.so,$(wildcard tests/broken/broken_*.cu)))
FAULTY := $(patsubst tests/faults/%.c,$(OUT)/ops-faulty/%-cpu.so,$(wildcard tests/faults/*.c)) \
    $(if $(WITH_CUDA),$(patsubst tests/faults/%.cu,$(OUT)/ops-faulty/%-cuda.so,$(wildcard tests/faults/*.cu)))
UNIT_SRC := $(wildcard tests/unit/test_*.c)
SYSTEM_SRC := $(wildcard tests/system/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
EXAMPLES_SRC := $(wildcard examples/*.c)
GPU_SRC := $(wildcard tests/gpu/*.cu)
obj = $(patsubst %,$(OUT)/obj/%.o,$(1))

# The headers as they are installed, for xopctl op build.
HEADERS := $(wildcard proto/include/xop/* kernels/include/xop/*)
INCLUDED := $(patsubst %,$(OUT)/include/xop/%,$(notdir $(HEADERS)))
CORE := $(INCLUDED) $(OUT)/libxopclient.so $(OUT)/libxopclient.a $(OUT)/xopctl $(OUT)/xopd $(OUT)/xop-cpu.so \
    $(if $(WITH_CUDA),$(OUT)/xop-cuda.so)
UNIT := $(patsubst tests/unit/%.c,$(OUT)/tests/%,$(UNIT_SRC))
SYSTEM := $(patsubst tests/system/%.c,$(OUT)/tests/%,$(SYSTEM_SRC))
FUZZERS := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(FUZZ_SRC))
GPU := $(if $(WITH_CUDA),$(patsubst %.cu,$(OUT)/%,$(GPU_SRC)))
EXAMPLES := $(patsubst examples/%.c,$(OUT)/examples/%,$(EXAMPLES_SRC))

.PHONY: all tests unit quickstart test check check-unit check-gpu fuzz fuzzers lint format deps install uninstall \
    dist deb check-deb clean help print-%
.DELETE_ON_ERROR:
.SECONDARY:

## all          build the daemon, its backends, the client library and xopctl
all: $(CORE)

# ---- How things are made ----
$(OUT)/obj/%.c.o: %.c $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(EXTRA_CFLAGS) -MMD -MP -c $< -o $@

$(OUT)/obj/%.cu.o: %.cu $(FLAGS_STAMP)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) $(CUDA_GENCODE) -MMD -MP -MF $(@:.o=.d) -c $< -o $@

# These hold what is beside them, byte for byte.
$(call obj,daemon/front/page.c): $(wildcard daemon/front/page/*)
$(call obj,client/xopctl/op_new.c): $(wildcard client/xopctl/templates/*)

$(call obj,$(KERNEL_SRC) $(CPU_SRC) $(wildcard tests/broken/*.c tests/faults/*.c)): EXTRA_CFLAGS := $(KERNEL_CFLAGS)
$(call obj,$(wildcard kernels/cuda/*.c)): EXTRA_CFLAGS := -isystem $(CUDA_INCLUDE) -fvisibility=hidden
$(call obj,kernels/cuda/built.c): EXTRA_CFLAGS += -DXOP_CUDA_MACHINE='"$(subst $(space),$(comma),$(ARCHS))"' \
    -DXOP_CUDA_PTX='"$(lastword $(ARCHS))"'

$(INCLUDED): $(OUT)/include/xop/%: $(HEADERS)
	@mkdir -p $(@D)
	$(Q)ln -sf $(abspath $(firstword $(wildcard proto/include/xop/$* kernels/include/xop/$*))) $@

$(OUT)/libxopclient.so.1: $(call obj,$(CLIENT_SRC) $(PROTO_SRC)) client/libxopclient.map
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,-soname,libxopclient.so.1 \
	    -Wl,--version-script=client/libxopclient.map -Wl,--no-undefined $(filter %.o,$^) \
	    $(call pkg_libs,$(CLIENT_PKGS)) -o $@

$(OUT)/libxopclient.so: $(OUT)/libxopclient.so.1
	$(Q)ln -sf libxopclient.so.1 $@

$(OUT)/libxopclient.a: $(call obj,$(CLIENT_SRC) $(PROTO_SRC))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUT)/xopctl: $(call obj,$(CTL_SRC) $(REFERENCE_SRC)) $(OUT)/libxopclient.so
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -lxopclient $(if $(CTL_RPATH),-Wl$(comma)-rpath$(comma)'$(CTL_RPATH)') \
	    $(call pkg_libs,$(CTL_PKGS) $(CLIENT_PKGS)) -ldl -lm -o $@

$(OUT)/xopd: $(call obj,$(DAEMON_SRC) $(PROTO_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(call pkg_libs,$(DAEMON_PKGS)) -lpthread -ldl -lm -o $@

$(OUT)/xop-cpu.so: $(call obj,$(CPU_SRC))
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,--no-undefined $^ -lpthread -ldl -lm -o $@

$(OUT)/xop-cuda.so: $(call obj,$(CUDA_SRC))
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart static -shared -Xlinker --as-needed $^ -lpthread -ldl -lm -o $@

# Test operators bring what they need of the kernels with them, as a user's library would.
$(OUT)/ops-broken/%-cpu.so: $(OUT)/obj/tests/broken/%.c.o \
    $(call obj,$(BROKEN_SHARED) $(filter-out kernels/cpu/backend.c,$(CPU_SRC)))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared -Wl,--no-undefined $^ -ldl -lm -o $@

$(OUT)/ops-broken/%-cuda.so: $(OUT)/obj/tests/broken/%.cu.o \
    $(call obj,$(filter-out kernels/cuda/backend.c,$(CUDA_SRC)))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart static -shared -Xlinker --as-needed $^ -ldl -o $@

$(OUT)/ops-faulty/%-cpu.so: $(OUT)/obj/tests/faults/%.c.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared $^ -lm -o $@

$(OUT)/ops-faulty/%-cuda.so: $(OUT)/obj/tests/faults/%.cu.o
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart static -shared -Xlinker --as-needed $^ -ldl -o $@

# Everything but main functions, for unit tests; the linker takes what a test uses. The kernels keep
# an archive of their own, since a backend is one.
$(OUT)/libtested.a: $(call obj,$(filter-out daemon/main.c client/xopctl/main.c,$(PROTO_SRC) $(CLIENT_SRC) $(CTL_SRC) $(REFERENCE_SRC) $(DAEMON_SRC) $(CPU_SRC)))
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUT)/tests/test_%: $(OUT)/obj/tests/unit/test_%.c.o $(OUT)/libtested.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(call pkg_libs,$(DAEMON_PKGS) cmocka) -lpthread -ldl -lm -o $@

# Stand-ins for libraries that are opened and not linked.
$(OUT)/fakes/libnvidia-ml.so.1: $(call obj,tests/fakes/nvml.c)
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) -shared $^ -lpthread -o $@
$(OUT)/tests/test_sensors: | $(OUT)/fakes/libnvidia-ml.so.1

$(SYSTEM): $(OUT)/tests/%: $(OUT)/obj/tests/system/%.c.o $(OUT)/libxopclient.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -lxopclient -Wl,-rpath,'$$ORIGIN/..' \
	    $(call pkg_libs,$(CTL_PKGS) $(CLIENT_PKGS) cmocka) -lpthread -lm -o $@

$(OUT)/examples/%: $(OUT)/obj/examples/%.c.o $(OUT)/libxopclient.so
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $(filter %.o,$^) -L$(OUT) -lxopclient -Wl,-rpath,'$$ORIGIN/..' \
	    $(call pkg_libs,$(CLIENT_PKGS) libevent_core) -lpthread -lm -o $@

# Measurements of single parts, without a daemon; `bench-message` runs the one of headers.
$(OUT)/bench/bench_%: $(OUT)/obj/tests/bench/bench_%.c.o $(OUT)/libtested.a
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(CC) $(LDFLAGS_ALL) $^ $(call pkg_libs,$(DAEMON_PKGS) cmocka) -lpthread -ldl -lm -o $@

# Tests and measurements of the CUDA backend open it as a worker does.
$(OUT)/tests/gpu/%: $(OUT)/obj/tests/gpu/%.cu.o $(call obj,$(KERNEL_SRC) kernels/cuda/check.c $(REFERENCE_SRC))
	@mkdir -p $(@D)
	$(call say,LD,$@)
	$(Q)$(NVCC) -cudart static $^ -ldl -lm -o $@

# Fuzzers are built whole with clang, apart from everything else.
FUZZED := $(filter-out client/xopctl/main.c,$(PROTO_SRC) $(CTL_SRC) $(REFERENCE_SRC) $(CLIENT_SRC)) $(wildcard daemon/config*.c) daemon/log.c \
    daemon/front/policy.c daemon/front/tokens.c
$(BUILD)/fuzz/obj/%.c.o: %.c
	@mkdir -p $(@D)
	$(call say,CLANG,$<)
	$(Q)clang -std=gnu17 -g -O1 -fsanitize=fuzzer-no-link,address,undefined \
	    -fno-sanitize-recover=undefined $(INCLUDES) $(CPPFLAGS) \
	    $(call pkg_cflags,$(DAEMON_PKGS)) -MMD -MP -c $< -o $@
$(BUILD)/fuzz/libfuzzed.a: $(patsubst %,$(BUILD)/fuzz/obj/%.o,$(FUZZED))
	$(Q)rm -f $@ && $(AR) rcs $@ $^
$(BUILD)/fuzz/fuzz_%: $(BUILD)/fuzz/obj/tests/fuzz/fuzz_%.c.o $(BUILD)/fuzz/libfuzzed.a
	$(call say,LD,$@)
	$(Q)clang -fsanitize=fuzzer,address,undefined $^ $(call pkg_libs,$(DAEMON_PKGS)) -lm -lpthread -o $@

# ---- Running ----
## tests        build everything that `test` runs
tests: all $(UNIT) $(SYSTEM) $(BROKEN) $(FAULTY) $(EXAMPLES)

## quickstart   install what is missing, build, and show xopd at work in under two minutes
quickstart:
	$(Q)scripts/deps.sh build
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) all
	$(Q)XOP_BUILD=$(OUT) scripts/quickstart.sh

## test         install what the tests need, build, run all tests
test:
	$(Q)scripts/deps.sh test
	$(Q)$(MAKE) --no-print-directory -j$$(nproc) tests
	$(Q)$(MAKE) --no-print-directory check

## check        build and run all tests, without installing anything (SAN=address, SAN=thread)
check: tests
	$(Q)XOP_BUILD=$(OUT) XOP_SAN=$(SAN) PYTHON=$(PYTHON) tests/run.sh $(TESTS)

# Unit tests alone, for sanitizers that do not go with whole daemons.
unit: $(UNIT)
check-unit: unit
	$(Q)XOP_BUILD=$(OUT) XOP_SAN=thread tests/run.sh

## check-gpu    on a GPU host: verify, system tests and broken operators on the CUDA backend
check-gpu: tests $(GPU)
	$(Q)XOP_BUILD=$(OUT) PYTHON=$(PYTHON) tests/gpu/check.sh

## bench-message  what decoding and encoding of headers costs, in nanoseconds
.PHONY: bench-message
bench-message: $(OUT)/bench/bench_message
	$(Q)$<

## bench-worker   what the worker's loop takes for a request, in nanoseconds, without a device
.PHONY: bench-worker
bench-worker: $(OUT)/bench/bench_worker
	$(Q)$<

## bench-restart  how long clients feel that a worker was killed (XOP_BACKEND=cpu or cuda)
.PHONY: bench-restart
bench-restart: all
	$(Q)XOP_BUILD=$(OUT) $(PYTHON) tests/bench/bench_restart.py

## bench-redis    small requests beside redis-server, which has to be installed
.PHONY: bench-redis
bench-redis: all
	$(Q)XOP_BUILD=$(OUT) $(PYTHON) tests/bench/bench_redis.py

## bench-tls      large tensors over TLS beside plain TCP
.PHONY: bench-tls
bench-tls: all
	$(Q)XOP_BUILD=$(OUT) $(PYTHON) tests/bench/bench_tls.py

## bench-idle     what xopd takes of a core while it has nothing to do
.PHONY: bench-idle
bench-idle: all
	$(Q)XOP_BUILD=$(OUT) $(PYTHON) tests/bench/bench_idle.py

## chaos        everything goes wrong at once for two minutes, or XOP_CHAOS_SECONDS
.PHONY: chaos
chaos: tests
	$(Q)cd tests/faults && XOP_CHAOS_SECONDS=$${XOP_CHAOS_SECONDS:-120} XOP_BUILD=$(abspath $(OUT)) $(PYTHON) test_chaos.py

## fuzzers      build the fuzzers (clang)
fuzzers: $(FUZZERS)

## fuzz         run each fuzzer for FUZZ_SECONDS
fuzz: fuzzers
	$(Q)for f in $(notdir $(FUZZERS)); do \
	    mkdir -p $(BUILD)/fuzz/corpus/$$f; \
	    $(BUILD)/fuzz/$$f -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=1024 -timeout=10 \
	        -artifact_prefix=$(BUILD)/fuzz/ -print_final_stats=0 -verbosity=0 \
	        $(BUILD)/fuzz/corpus/$$f tests/fuzz/corpus/$${f#fuzz_} || exit 1; \
	    echo "$$f: nothing found in $(FUZZ_SECONDS) s"; \
	done

SOURCES = $(shell git ls-files '*.c' '*.h' '*.cu' '*.cuh' 2>/dev/null)
## lint         clang-format, clang-tidy, cppcheck and mandoc
lint: compile_commands.json
	$(Q)scripts/lint.sh $(SOURCES)

## format       rewrite all C and CUDA sources in our style
format:
	$(Q)clang-format -i $(SOURCES)

## deps         install with apt what is missing (DEPS=build, test, all or deb)
deps:
	$(Q)scripts/deps.sh $(or $(DEPS),all)

export COMPILE_COMMAND = $(CC) $(filter-out -g,$(CFLAGS_ALL))
## compile_commands.json  for editors and clang-tidy
.PHONY: compile_commands.json
compile_commands.json:
	$(Q)scripts/compile_commands.sh > $@

# ---- Installing ----
UNITDIR ?= $(PREFIX)/lib/systemd/system
# Packages are for any GPU, unless a list is given.
DEB_CUDA_ARCHS := $(if $(filter file,$(origin CUDA_ARCHS)),all,$(CUDA_ARCHS))
## install      into $(DESTDIR)$(PREFIX)
install: all
	$(Q)DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' UNITDIR='$(UNITDIR)' OUT='$(OUT)' VERSION='$(VERSION)' MSGPACK='$(MSGPACK)' \
	    BACKENDS='$(filter %/xop-cpu.so %/xop-cuda.so,$(CORE))' scripts/install.sh

## uninstall    remove what install put there
uninstall:
	$(Q)DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' LIBDIR='$(LIBDIR)' UNITDIR='$(UNITDIR)' \
	    scripts/install.sh --uninstall

## dist         a source archive of the last commit, the same bytes wherever it is made
dist:
	$(Q)BUILD='$(BUILD)' VERSION='$(VERSION)' scripts/dist.sh

## deb          packages for Debian, in $(BUILD)/deb; xopd-cuda too where there is nvcc
deb:
	$(Q)BUILD='$(BUILD)' VERSION='$(VERSION)' NVCC='$(if $(WITH_CUDA),$(NVCC))' CUDA_ARCHS='$(DEB_CUDA_ARCHS)' \
	    JOBS='$(patsubst -j%,%,$(filter -j%,$(MAKEFLAGS)))' scripts/deb.sh

## check-deb    build the packages; install, upgrade, remove and purge them in a Debian of their own (root)
check-deb:
	$(Q)BUILD='$(BUILD)' NVCC='$(if $(WITH_CUDA),$(NVCC))' CUDA_ARCHS='$(CUDA_ARCHS)' tests/packages/check.sh

## clean        remove everything that was built
clean:
	rm -rf $(BUILD) compile_commands.json

## help         this list; variables: BUILD= SAN=address|thread CUDA=auto|yes|no NVCC= CUDA_ARCHS=90,... or all CC= PREFIX= DESTDIR= DEPS_PREFIX= FUZZ_SECONDS= TESTS= V=1
help:
	@sed -n 's/^## //p' Makefile

print-%:
	@echo '$*=$($*)'

-include $(shell find $(OUT)/obj $(BUILD)/fuzz/obj -name '*.d' 2>/dev/null)
