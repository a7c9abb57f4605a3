// The modules of a QR code. `qr.tsx` loads this file when it shows one.

import { encode } from "uqr";

const quiet = 4;

/** What to draw in a square of `side` units: each run of dark modules of a row as one rectangle. */
export function drawQr(text: string): { readonly side: number; readonly path: string } {
  const { size, data } = encode(text, { ecc: "M", border: 0 });
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
  return { side: size + 2 * quiet, path };
}
