#!/bin/sh
# Drives the emulator that BIGTABLE_EMULATOR_HOST names with cbt.
set -eu

c() { cbt -project conformance -instance cbt "$@" 2>"$log" || { cat "$log" >&2; return 1; }; }
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# expect WHAT TEXT COMMAND…: the command's output must contain the text.
expect() {
	what=$1 text=$2
	shift 2
	out=$(c "$@")
	case $out in
	*"$text"*) ;;
	*)
		echo "cbt: $what: expected '$text' in:" >&2
		echo "$out" >&2
		exit 1
		;;
	esac
}

# refuse WHAT COMMAND…: the command must fail.
refuse() {
	what=$1
	shift
	if cbt -project conformance -instance cbt "$@" >/dev/null 2>&1; then
		echo "cbt: $what: was not refused" >&2
		exit 1
	fi
}

c createtable t splits=g,p families=cf:maxversions=2,other
expect "table list" t ls
c createfamily t extra
c setgcpolicy t extra "maxage=1h || maxversions=3"
expect "a union policy" "versions() > 3" ls t
c setgcpolicy t extra "maxage=1h && maxversions=3"
expect "an intersection policy" "&&" ls t
c set t row1 cf:q=first@1000
c set t row1 cf:q=second@2000 other:x=1
c set t zebra cf:q=last
expect "count" 2 count t
expect "both versions" first read t prefix=row
expect "the latest version" second read t cells-per-column=1 prefix=row
expect "a column" "other:x" read t columns=other:.* count=1
expect "a range" zebra read t start=s
expect "a regex" row1 read t regex='row.*'
expect "reverse" zebra read t reversed=true count=1
expect "one row" second lookup t row1
refuse "an add to an ordinary family" addtocell t row1 extra:n=1
c deletecolumn t row1 other x
c deletefamily t other
refuse "a family that was deleted" set t row1 other:x=1
refuse "a table that is missing" read nope
c deleterow t row1
expect "count after deleterow" 1 count t
c deleteallrows t
expect "count after deleteallrows" 0 count t
c createappprofile cbt p "no single-row transactions" route-any
expect "app profiles" "no single-row" listappprofile cbt
c deletetable t
refuse "a table that was deleted" count t
echo "cbt: ok"
