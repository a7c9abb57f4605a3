// A QR code as SVG: one path, always dark on light, since not every camera reads the reverse.

import { encode } from "uqr";

const quiet = 4;

/** `text`: what a wallet reads. `label`: what the code holds, in words. */
export function Qr({ text, label }: { readonly text: string; readonly label: string }) {
  const { size, data } = encode(text, { ecc: "M", border: 0 });
  // Each run of dark modules of a row is one rectangle.
  const path = data
    .map((row, y) => {
      let runs = "";
      for (let x = 0; x < size; x++) {
        if (!row[x] || row[x - 1]) continue;
        let length = 1;
        while (row[x + length]) length++;
        runs += `M${x + quiet} ${y + quiet}h${length}v1h-${length}z`;
      }
      return runs;
    })
    .join("");
  const side = size + 2 * quiet;
  return (
    <svg class="qr" role="img" aria-label={label} viewBox={`0 0 ${side} ${side}`}>
      <rect class="qr-light" width={side} height={side} />
      <path class="qr-dark" shape-rendering="crispEdges" d={path} />
    </svg>
  );
}
