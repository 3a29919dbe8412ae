#!/usr/bin/env bash
# Install Debian's chromium, the browser that the report page is tested in, if there is none.
#
# As root, or with sudo that asks for no password, on a system with apt; elsewhere it stops with what to do.
set -euo pipefail

if command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1; then
  exit 0
fi
if ! command -v apt-get >/dev/null 2>&1; then
  echo "the browser test needs chromium, and there is no apt-get: install chromium or google-chrome, then try again" >&2
  exit 1
fi
sudo=()
if [ "$(id -u)" != 0 ]; then
  if ! sudo -n true 2>/dev/null; then
    echo "the browser test needs chromium; run this, then try again: sudo apt-get install -y chromium" >&2
    exit 1
  fi
  sudo=(sudo -n)
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing chromium and fonts-dejavu-core by apt-get, as root …" >&2
# A source that does not answer must not stop an install that the other sources can serve.
"${sudo[@]}" apt-get update >/dev/null || true
"${sudo[@]}" apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends chromium fonts-dejavu-core >/dev/null
command -v chromium >/dev/null 2>&1 || { echo "apt-get installed chromium, but there is no such command" >&2; exit 1; }
