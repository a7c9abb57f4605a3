// A loop with a tool, and a structured answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/anthropics/anthropic-sdk-go"
)

func ask(request anthropic.MessageNewParams) *anthropic.Message {
	client := anthropic.NewClient()
	message, err := client.Messages.New(context.Background(), request)
	if err != nil {
		log.Fatal(err)
	}
	return message
}

func schemaOf(name string) map[string]any {
	return map[string]any{
		"type":                 "object",
		"properties":           map[string]any{name: map[string]any{"type": "string"}},
		"required":             []string{name},
		"additionalProperties": false,
	}
}

func main() {
	weather := anthropic.ToolParam{
		Name:        "weather",
		Description: anthropic.String("The weather of a city"),
		InputSchema: anthropic.ToolInputSchemaParam{
			Properties: map[string]any{"city": map[string]any{"type": "string"}},
			Required:   []string{"city"},
		},
	}
	request := anthropic.MessageNewParams{
		Model:     "haiku",
		MaxTokens: 1000,
		Tools:     []anthropic.ToolUnionParam{{OfTool: &weather}},
		Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("Ask weather for Bern")),
		},
	}
	first := ask(request)
	var results []anthropic.ContentBlockParamUnion
	for _, block := range first.Content {
		if block.Type != "tool_use" {
			continue
		}
		var input struct{ City string }
		if err := json.Unmarshal(block.Input, &input); err != nil {
			log.Fatal(err)
		}
		result := anthropic.NewToolResultBlock(block.ID, "sunny in "+input.City, false)
		results = append(results, result)
	}
	request.Messages = append(
		request.Messages, first.ToParam(), anthropic.NewUserMessage(results...),
	)
	fmt.Println(ask(request).Content[0].Text)

	parsed := ask(anthropic.MessageNewParams{
		Model:     "haiku",
		MaxTokens: 1000,
		Messages: []anthropic.MessageParam{
			anthropic.NewUserMessage(anthropic.NewTextBlock("A city")),
		},
		OutputConfig: anthropic.OutputConfigParam{
			Format: anthropic.JSONOutputFormatParam{Schema: schemaOf("name")},
		},
	})
	var city struct{ Name string }
	if err := json.Unmarshal([]byte(parsed.Content[0].Text), &city); err != nil {
		log.Fatal(err)
	}
	fmt.Println("parsed:", city.Name)
}
