// What opens above every page, loaded at once.

export { Glossary } from "./glossary.tsx";
export { Palette } from "./palette.tsx";
