# A loop with a tool. The simulated model names the file after its field.
echo "sunny in Bern" > filepath
cn --config config.yaml -p "Use Read"
