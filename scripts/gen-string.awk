# A text file as a C string: awk -v name=ct__cpu_prelude -f scripts/gen-string.awk FILE
# Lines that hold nothing but a comment stay out of it.
BEGIN { printf "extern const char %s[];\nconst char %s[] =\n", name, name }
/^\/\// { next }
{
    gsub(/\\/, "&&")
    gsub(/"/, "\\\\&")
    printf "    \"%s\\n\"\n", $0
}
END { print "    ;" }
