# A loop with a tool. The simulated model names the file after its field.
echo "sunny in Bern" > filePath
opencode run -m gateway/opus "Use read"
