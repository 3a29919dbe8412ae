#!/usr/bin/env bash
# Prepare what the targets of the Makefile run on.
#
#   scripts/setup.sh [--java] [test|dev|docs|lowest|readers]
#
# Makes .venv with delvec and that extra in it; `lowest` is .venv-lowest, with the oldest Python there is and
# the lowest versions of all dependencies, `readers` is .venv-readers. With --java it also finds Java 17 or 21 and prints its
# home, the only thing that goes to standard output. Root on Debian or Ubuntu gets the missing system
# packages, which are named before anything is done; elsewhere, or with DELVEC_NO_APT=1, the script stops with
# the command that installs them. PYTHON names another python3.
#
# On Python 3.11 on Linux packages are those of requirements.lock, by their hashes. DELVEC_UNLOCKED=1 takes
# what constraints.txt allows instead, as everywhere else.
set -euo pipefail
cd "$(dirname "$0")/.." >/dev/null

want_java=
if [ "${1:-}" = --java ]; then
  want_java=yes
  shift
fi
extra=${1:-}
venv=.venv
constraints=constraints.txt
lock=
extras=$extra
pythons="python3 python3.13 python3.12 python3.11 python3.10"
case $extra in
  "") covers="base" lock=requirements.lock ;;
  test) covers="base test" lock=requirements.lock ;;
  dev) covers="base test dev" lock=requirements.lock ;;
  docs) covers="base docs" lock=requirements.lock ;;
  lowest)
    covers="lowest"
    venv=.venv-lowest
    constraints=constraints-lowest.txt
    extras=peers,pytest # not pandas, which delvec does not need
    pythons="python3.10 ${PYENV_ROOT:-${HOME:-}/.pyenv}/versions/3.10.*/bin/python python3.11 python3.12 python3.13 python3"
    ;;
  readers)
    covers="readers"
    venv=.venv-readers
    ;;
  *) echo "usage: scripts/setup.sh [--java] [test|dev|docs|lowest|readers]" >&2; exit 2 ;;
esac

log=.cache/setup.log
apt_unfinished=.cache/apt-unfinished
venv_python=$venv/bin/python

say() { printf '%s\n' "$@" >&2; }

die() {
  say "" "$@"
  exit 1
}

# Its output is worth reading only when the step fails.
logged() { "$@" >"$log" 2>&1 </dev/null 9>&-; }
quietly() {
  ! logged "$@" || return 0
  say "" "the last lines of $log:"
  tail -n 25 "$log" >&2
  die "failed: $*"
}

has() { command -v "$1" >/dev/null 2>&1; }

# --- Java -------------------------------------------------------------------------------------------

java_home=
refused=

# Homebrew's Java is not linked to where macOS looks for one.
java_candidates() {
  [ -z "${JAVA_HOME:-}" ] || echo "$JAVA_HOME/bin/java"
  command -v java || true
  ls -d /usr/lib/jvm/*/bin/java {/opt/homebrew,/usr/local}/opt/openjdk@{17,21}/bin/java 2>/dev/null || true
  local version
  for version in 17 21; do
    /usr/libexec/java_home -F -v "$version" 2>/dev/null | sed 's|$|/bin/java|' || true
  done
}

# The Java itself tells its home: `java` on the path may be a link or a version manager's wrapper.
find_java() {
  local java facts home version
  refused=
  while read -r java; do
    facts=$("$java" -XshowSettings:properties -version 2>&1 </dev/null) || facts=
    home=$(sed -n 's/^ *java\.home = //p' <<<"$facts")
    version=$(sed -n 's/.* version "\([0-9]*\).*/\1/p' <<<"$facts")
    case $version in
      17 | 21)
        if [ -x "$home/bin/java" ]; then
          java_home=$home
          return 0
        fi
        ;;
    esac
    refused+="  $java: ${version:+Java }${version:-does not run}"$'\n'
  done < <(java_candidates)
  return 1
}

# Debian 12 has 17 and no 21, Debian 13 the reverse, Ubuntu both. The package lists may be empty.
debian_java() {
  if grep -qs bookworm /etc/os-release || apt-cache show openjdk-17-jre-headless >/dev/null 2>&1; then
    echo openjdk-17-jre-headless
  else
    echo openjdk-21-jre-headless
  fi
}

# --- Python -----------------------------------------------------------------------------------------

find_python() {
  local candidate
  for candidate in ${PYTHON:-$pythons}; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 10))' >/dev/null 2>&1; then
      python=$candidate
      return
    fi
  done
  candidate=${PYTHON:-python3}
  die "delvec needs Python 3.10 or newer; $candidate is $("$candidate" --version 2>/dev/null || echo missing)." \
    "Where a newer one is installed, name it: make PYTHON=/path/to/python3.12 …"
}

venv_works() { "$venv_python" -m pip --version >/dev/null 2>&1; }

# Debian's python3 comes without ensurepip, and then `python3 -m venv` makes nothing usable.
has_ensurepip() { "$python" -c 'import ensurepip, venv' >/dev/null 2>&1; }
has_pip() { "$python" -m pip --version >/dev/null 2>&1; }

make_venv() {
  rm -rf "$venv"
  if has_ensurepip; then
    quietly "$python" -m venv "$venv"
  elif has uv; then
    quietly uv venv --seed --python "$python" "$venv"
  else
    # Not `pip --python`: the pip of Ubuntu 22.04 is too old for it.
    quietly "$python" -m venv --without-pip "$venv"
    quietly "$python" -m pip install --target \
      "$("$venv_python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" pip
  fi
}

# Python compiles what it imports; pip would compile everything, which takes longer than the rest.
pip_install() { "$venv_python" -m pip install --disable-pip-version-check --progress-bar off --no-compile "$@"; }

# What the lock is for: the newest wheels in it are those of glibc 2.28.
fits_lock() {
  "$venv_python" -c '
import platform, sys
libc, version = platform.libc_ver()
new = libc == "glibc" and tuple(map(int, version.split(".")[:2])) >= (2, 28)
sys.exit(not (new and sys.version_info[:2] == (3, 11) and platform.machine() == "x86_64"))' 2>/dev/null
}

# uv, which the lock has in its first part, takes a fraction of pip's time. It knows neither the settings of pip nor
# its mirrors: where it fails, pip tries, without a folder of the user's own wheels, which would be others.
install_exactly() {
  local options=(--no-deps --no-build-isolation "$@")
  logged "$venv/bin/uv" pip install --python "$venv_python" "${options[@]}" ||
    (unset PIP_FIND_LINKS && logged pip_install "${options[@]}")
}

# Everything by its hash, then delvec itself, built by what was just installed.
install_locked() {
  local part
  for part in build "${extra:-base}"; do
    sed -n "/ # .*\<$part\>/p" "$lock" >".cache/locked-$part.txt"
    install_exactly --require-hashes -r ".cache/locked-$part.txt" || return 1
  done
  install_exactly -e .
}

install_packages() {
  if [ -n "$lock" ] && [ -z "${DELVEC_UNLOCKED:-}" ] && fits_lock; then
    ! install_locked || return 0
    if grep -q "DO NOT MATCH THE HASHES" "$log"; then
      tail -n 25 "$log" >&2
      die "A package is not the one that $lock names. Where your index has builds of its own, this takes them:" \
        "  DELVEC_UNLOCKED=1 make …"
    fi
    say "the packages of $lock cannot be had here ($(tail -n 1 "$log")):" "taking what $constraints allows …"
  fi
  quietly pip_install -c "$constraints" -e ".${extras:+[$extras]}"
}

# --- System packages --------------------------------------------------------------------------------

is_root() { [ "$(id -u)" = 0 ]; }

export DEBIAN_FRONTEND=noninteractive

# A source that does not answer must not stop an install that the other sources can serve.
apt_update() {
  {
    [ ! -e "$apt_unfinished" ] || dpkg --configure -a
    apt-get update
  } >"$log" 2>&1 </dev/null 9>&- || true
}

# Without this folder, as in slim images, Debian's Java fails to configure.
apt_install() {
  say "installing $* …"
  mkdir -p /usr/share/man/man1
  touch "$apt_unfinished"
  quietly apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends "$@"
  rm "$apt_unfinished"
}

stop_with_command() {
  local sudo="sudo " packages=""
  ! is_root || sudo=""
  [ -z "$need_venv" ] || say "" "$python cannot make virtual environments: it has neither ensurepip nor pip."
  if [ -n "$need_java" ]; then
    say "" "Spark runs on Java 17 or 21, and there is none here."
    [ -z "$refused" ] || say "Found, and of no use:" "${refused%$'\n'}"
  fi
  if has apt-get; then
    packages="${need_venv:+ python3-venv}${need_java:+ $(debian_java)}"
    die "Run this, then try again:" "  ${sudo}apt-get update && ${sudo}apt-get install -y$packages"
  elif has dnf; then
    packages="${need_venv:+ python3-pip}${need_java:+ java-21-openjdk-headless}"
    die "Run this, then try again:" "  ${sudo}dnf install -y$packages"
  elif [ "$(uname)" = Darwin ]; then
    packages="${need_venv:+ python}${need_java:+ openjdk@17}"
    die "Run this, then try again:" "  brew install$packages"
  fi
  die "Install ${need_venv:+pip for $python}${need_venv:+${need_java:+ and }}${need_java:+Java 17 or 21 (set JAVA_HOME to it)}, then try again."
}

# ----------------------------------------------------------------------------------------------------

mkdir -p .cache
if has flock; then
  exec 9>.cache/setup.lock
  flock -n 9 || { say "waiting for another set-up of this checkout …"; flock 9; }
fi

# The folder is part of it because an editable install, and the scripts in .venv/bin, hold its path.
key="$(cat pyproject.toml "$constraints" ${lock:+"$lock"} scripts/setup.sh | cksum) $PWD"
stamp() { echo "$venv/.delvec-$1"; }
installed() { "$venv_python" -c '' 2>/dev/null && [ "$(cat "$(stamp "${extra:-base}")" 2>/dev/null)" = "$key" ]; }

need_venv=
need_java=
if ! installed && ! venv_works; then
  find_python
  has_ensurepip || has uv || has_pip || need_venv=yes
fi
if [ -n "$want_java" ]; then
  # A Java from an interrupted install runs, but may lack its certificates.
  if ! find_java || [ -e "$apt_unfinished" ]; then
    need_java=yes
  fi
fi

if [ -n "$need_venv$need_java" ]; then
  if ! is_root || ! has apt-get || [ -n "${DELVEC_NO_APT:-}" ]; then
    stop_with_command
  fi
  apt_update
  say "This machine lacks packages that are needed. You are root, so these are installed now, with what they need:" \
    "  apt-get install --no-install-recommends${need_venv:+ python3-venv}${need_java:+ $(debian_java)}" \
    "DELVEC_NO_APT=1 installs nothing outside of this folder, and stops here instead."
  if [ -n "$need_venv" ]; then
    apt_install python3-venv
    ! has_ensurepip || need_venv=
  fi
  if [ -n "$need_java" ]; then
    apt_install "$(debian_java)"
    ! find_java || need_java=
  fi
  [ -z "$need_venv$need_java" ] || stop_with_command
fi

if ! installed; then
  note=
  if ! venv_works; then
    make_venv
    note=" (Spark alone is some 450 MB)"
  fi
  say "installing delvec${extras:+[$extras]} into $venv …$note"
  install_packages
  for level in $covers; do
    echo "$key" >"$(stamp "$level")"
  done
fi

if [ -n "$want_java" ]; then
  if [ -n "${JAVA_HOME:-}" ] && [[ $refused == *"  $JAVA_HOME/bin/java: "* ]]; then
    say "JAVA_HOME=$JAVA_HOME is not Java 17 or 21: using $java_home"
  fi
  echo "$java_home"
fi
