// A loop with a tool, and a structured answer.

import com.fasterxml.jackson.annotation.JsonClassDescription;
import com.openai.client.OpenAIClient;
import com.openai.client.okhttp.OpenAIOkHttpClient;
import com.openai.models.chat.completions.ChatCompletionCreateParams;
import com.openai.models.chat.completions.ChatCompletionToolMessageParam;

class Check {
  @JsonClassDescription("The weather of a city")
  static class Weather {
    public String city;
  }

  static class City {
    public String name;
  }

  public static void main(String[] args) {
    OpenAIClient client = OpenAIOkHttpClient.fromEnv();
    var ask =
        ChatCompletionCreateParams.builder()
            .model("haiku")
            .addTool(Weather.class)
            .addUserMessage("Ask Weather for Bern");
    var message = client.chat().completions().create(ask.build()).choices().get(0).message();
    ask.addMessage(message);
    for (var call : message.toolCalls().orElseThrow()) {
      var function = call.asFunction();
      var result =
          ChatCompletionToolMessageParam.builder()
              .toolCallId(function.id())
              .content("sunny in " + function.function().arguments(Weather.class).city);
      ask.addMessage(result.build());
    }
    var answer = client.chat().completions().create(ask.build()).choices().get(0).message();
    System.out.println(answer.content().orElseThrow());

    var structured =
        ChatCompletionCreateParams.builder()
            .model("haiku")
            .addUserMessage("A city")
            .responseFormat(City.class)
            .build();
    var parsed = client.chat().completions().create(structured).choices().get(0).message();
    System.out.println("parsed: " + parsed.content().orElseThrow().name);
  }
}
