// A loop with a tool, and a structured answer.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/shared"
)

func ask(request openai.ChatCompletionNewParams) openai.ChatCompletionMessage {
	client := openai.NewClient()
	completion, err := client.Chat.Completions.New(context.Background(), request)
	if err != nil {
		log.Fatal(err)
	}
	return completion.Choices[0].Message
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
	weather := openai.ChatCompletionFunctionTool(shared.FunctionDefinitionParam{
		Name:        "weather",
		Description: openai.String("The weather of a city"),
		Parameters:  schemaOf("city"),
	})
	request := openai.ChatCompletionNewParams{
		Model: "haiku",
		Tools: []openai.ChatCompletionToolUnionParam{weather},
		Messages: []openai.ChatCompletionMessageParamUnion{
			openai.UserMessage("Ask weather for Bern"),
		},
	}
	first := ask(request)
	request.Messages = append(request.Messages, first.ToParam())
	for _, call := range first.ToolCalls {
		var input struct{ City string }
		if err := json.Unmarshal([]byte(call.Function.Arguments), &input); err != nil {
			log.Fatal(err)
		}
		result := openai.ToolMessage("sunny in "+input.City, call.ID)
		request.Messages = append(request.Messages, result)
	}
	fmt.Println(ask(request).Content)

	format := shared.ResponseFormatJSONSchemaParam{
		JSONSchema: shared.ResponseFormatJSONSchemaJSONSchemaParam{
			Name:   "city",
			Strict: openai.Bool(true),
			Schema: schemaOf("name"),
		},
	}
	parsed := ask(openai.ChatCompletionNewParams{
		Model:    "haiku",
		Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("A city")},
		ResponseFormat: openai.ChatCompletionNewParamsResponseFormatUnion{
			OfJSONSchema: &format,
		},
	})
	var city struct{ Name string }
	if err := json.Unmarshal([]byte(parsed.Content), &city); err != nil {
		log.Fatal(err)
	}
	fmt.Println("parsed:", city.Name)
}
