#!/usr/bin/env bash
# Installs the Debian packages that the build and the tests need, when they are missing and it can (root or
# password-less sudo); otherwise names them in one message and fails.
set -euo pipefail

packages=(cmake ninja-build g++ ccache lld libasio-dev libnghttp2-dev libssl-dev doctest-dev iproute2 iptables faketime default-jre-headless
	postgresql libpostgresql-jdbc-java)
missing=()
for package in "${packages[@]}"; do
	dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
done
# These may come from elsewhere; only the commands matter.
for tool in cmake:cmake ninja-build:ninja g++:g++ default-jre-headless:java; do
	if command -v "${tool#*:}" >/dev/null; then
		missing=("${missing[@]/#${tool%%:*}/}")
	fi
done
needed=()
for package in "${missing[@]}"; do [ -n "$package" ] && needed+=("$package"); done
[ ${#needed[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null; then
	echo "missing packages: ${needed[*]} (Debian names). Install them with your system's package manager." >&2
	exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
	if ! sudo -n true 2>/dev/null; then
		echo "missing packages; run: sudo apt-get install -y ${needed[*]}" >&2
		exit 1
	fi
	as_root=(sudo)
fi
echo "installing: ${needed[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
"${as_root[@]}" apt-get update -qq >/dev/null
"${as_root[@]}" apt-get install -y -qq --no-install-recommends "${needed[@]}" >/dev/null
