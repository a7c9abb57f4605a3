# A loop with a tool. The simulated model names the file after its field.
echo "sunny in Bern" > path
cline "Use read_files"
