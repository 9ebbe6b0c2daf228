#!/bin/sh
# Install the Debian or Ubuntu packages that the embedded cluster, the images and the tests need, where they are missing.
#
#   tests/cluster/system-packages.sh           install what is missing (root)
#   tests/cluster/system-packages.sh --list    print package, what it gives, why
#
# For Debian 12 and 13, Ubuntu 22.04 and 24.04. Packages are the distribution's own, without recommended ones.
# Without root it installs nothing and says what to do; that is no error, because each later step checks what it needs.
set -eu

# package | a file or program that shows it is there | why
packages() {
    cat <<'LIST'
util-linux | unshare | the cluster's namespaces (unshare, nsenter)
mount | mount | what is mounted inside them
openssl | openssl | the cluster's certificates
iproute2 | ip | the link and the routes between the machine and the node
iptables | iptables | hands new connections to the network policies
nftables | nft | kube-proxy's rules for Services
runc | runc | runs the containers of pods
containernetworking-plugins | /usr/lib/cni/bridge | the network of pods
buildah | buildah | builds the images from their Containerfiles
debootstrap | debootstrap | makes the images' base from Debian packages, without a registry
g++ | g++ | compiles programs to native code, in the tests of headway compile
ca-certificates | /etc/ssl/certs/ca-certificates.crt | TLS to the mirrors and registries of packages
LIST
    # debootstrap checks Debian's signatures, for which Ubuntu does not bring the keys along
    echo 'debian-archive-keyring | /usr/share/keyrings/debian-archive-keyring.gpg | the keys that sign the base'
}

present() {
    case $1 in
        /*) test -e "$1" ;;
        *) PATH="$PATH:/usr/sbin:/sbin" command -v "$1" >/dev/null ;;
    esac
}

if [ "${1:-}" = --list ]; then
    packages
    exit
fi

missing=$(packages | while IFS='|' read -r package sign _; do
    present "$(echo "$sign" | tr -d ' ')" || echo "$package" | tr -d ' '
done | xargs)
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
    echo "Not a Debian or Ubuntu machine: install the equivalents of: $missing" >&2
elif [ "$(id -u)" != 0 ]; then
    echo "Missing for a cluster with pods, or for its tests: $missing. As root: apt-get install --no-install-recommends $missing" \
         "(or set HEADWAY_KUBECONFIG to use another cluster); what needs only an API server works without." >&2
else
    echo "Installing: $missing" >&2
    export DEBIAN_FRONTEND=noninteractive
    # The lists may be old, or none: they are fetched only if the installation fails without.
    # shellcheck disable=SC2086 # a list of names
    apt-get install --yes --quiet=2 --no-install-recommends $missing >/dev/null 2>&1 || {
        apt-get update --quiet=2
        apt-get install --yes --quiet=2 --no-install-recommends $missing >/dev/null
    }
fi
