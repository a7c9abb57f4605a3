// A button beside each sample of the documents, which copies it. A script of its own: the pages of
// documents have no other.

// Absent without https, but for localhost.
if (navigator.clipboard)
  for (const sample of document.querySelectorAll(".sample")) {
    const button = document.createElement("button");
    button.className = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(sample.querySelector("code")?.textContent ?? "");
      button.textContent = "Copied";
      setTimeout(() => {
        button.textContent = "Copy";
      }, 2_000);
    });
    sample.append(button);
  }
