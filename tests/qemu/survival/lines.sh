# Checks the numbered lines of $pod in its newest attempt, rotated files first, and prints how many there are.
# shellcheck shell=dash disable=SC2154,SC2046 # the test sets $pod; the names are words
cd /var/log/pods/default_"$pod"-node_*/main || exit 1
newest=$(ls | sed 's/\.log.*//' | sort -n | tail -n 1)
cat $(ls "$newest".log.* 2>/dev/null | sort) "$newest".log | awk '
    $3 != "F" || $4 != "line" { print "unexpected: " $0; bad = 1; next }
    $5 != last + 1 { print "after line " last " comes: " $0; bad = 1 }
    { last = $5 }
    END { if (bad) exit 1; print last + 0 }'
