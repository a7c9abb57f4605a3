# A loop with a tool, and a structured answer. The simulated model names the command after its
# field.
cmd() { echo "sunny in Bern"; }
export -f cmd
codex exec --skip-git-repo-check "Use exec_command"
cat > schema.json <<'END'
{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"],
 "additionalProperties": false}
END
answer=$(codex exec --skip-git-repo-check --output-schema schema.json "A city")
echo "parsed: $answer"
