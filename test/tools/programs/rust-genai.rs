// A loop with a tool, and a structured answer.
use genai::adapter::AdapterKind;
use genai::chat::{
    ChatMessage, ChatOptions, ChatRequest, ChatResponseFormat, JsonSpec, Tool, ToolResponse,
};
use genai::resolver::{AuthData, Endpoint, ServiceTargetResolver};
use genai::{Client, ModelIden, ServiceTarget};

fn schema_of(name: &str) -> String {
    let rest = r#""required": ["NAME"], "additionalProperties": false}"#;
    format!(r#"{{"type": "object", "properties": {{"NAME": {{"type": "string"}}}}, {rest}"#)
        .replace("NAME", name)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("the address is missing")?;
    let resolver = ServiceTargetResolver::from_resolver_fn(
        move |target: ServiceTarget| -> Result<ServiceTarget, genai::resolver::Error> {
            Ok(ServiceTarget {
                endpoint: Endpoint::from_owned(address.clone()),
                auth: AuthData::from_env("GATEWAY_KEY"),
                model: ModelIden::new(AdapterKind::OpenAI, target.model.model_name),
            })
        },
    );
    let client = Client::builder().with_service_target_resolver(resolver).build()?;

    let weather = Tool::new("weather")
        .with_description("The weather of a city")
        .with_schema(schema_of("city").parse()?);
    let request = ChatRequest::new(vec![ChatMessage::user("Ask weather for Bern")])
        .with_tools(vec![weather]);
    let calls = client.exec_chat("haiku", request.clone(), None).await?.into_tool_calls();
    let call = calls.first().ok_or("no call")?;
    let city = call.fn_arguments["city"].as_str().unwrap_or_default();
    let result = ToolResponse::new(call.call_id.clone(), format!("sunny in {city}"));
    let request = request.append_message(calls.clone()).append_message(result);
    let answer = client.exec_chat("haiku", request, None).await?;
    println!("{}", answer.first_text().unwrap_or_default());

    let mut spec = JsonSpec::new("city", Vec::<String>::new());
    spec.schema = schema_of("name").parse()?;
    let options = ChatOptions::default().with_response_format(ChatResponseFormat::JsonSpec(spec));
    let request = ChatRequest::new(vec![ChatMessage::user("A city")]);
    let answer = client.exec_chat("haiku", request, Some(&options)).await?;
    println!("parsed: {}", answer.first_text().unwrap_or_default());
    Ok(())
}
