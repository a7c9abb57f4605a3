// Connect's types name this DOM type; without it they would silently become `any`.
type HeadersInit = NonNullable<ConstructorParameters<typeof Headers>[0]>;
