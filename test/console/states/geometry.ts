// What is out of its place on a page, judged by rectangles.

/** The widths at which every state is judged. */
export const widths = [1440, 1280, 1024, 768, 360] as const;

/** Fonts of different widths. Pages come with none, so each machine has its own. */
export const fonts = ["DejaVu Sans", "DejaVu Sans Condensed"] as const;

/**
 * Runs in the page. One sentence for each fault: something leaves its card, its dialog or the
 * screen; a control of a dialog is out of reach; the last row of figures has a hole; the axis of a
 * chart is not beside it; a table scrolls sideways on a laptop, or as a list; what should be
 * copied is not seen whole; a name is cut, and its whole is nowhere, or it has no place at all; a
 * date in a table is broken; a hint is squeezed beside a free place; one of several tools is left
 * alone on a row; an id is the title of the page.
 */
export const findMisplaced = `(() => {
  const problems = new Set();
  const name = (one) => {
    const text = (one.getAttribute("aria-label") ?? one.textContent).trim().slice(0, 40);
    const classes = one.getAttribute("class");
    return one.localName + (classes ? "." + classes.replaceAll(" ", ".") : "") + " “" + text + "”";
  };
  // What scrolls sideways by itself may hold anything, and so may what cuts its text.
  const isInside = (box, one) => {
    for (let at = one.parentElement; at && at !== box; at = at.parentElement)
      if (getComputedStyle(at).overflowX !== "visible") return false;
    return true;
  };
  const judge = (font) => {
    const say = (text) => problems.add(font + ": " + text);
    const { clientWidth, scrollWidth } = document.documentElement;
    if (scrollWidth > clientWidth) say("the page is wider than the screen");
    for (const box of document.querySelectorAll(".card, .step, .notice, .bars-tip, .figures > div, dialog")) {
      if (box.scrollWidth <= box.clientWidth || !box.checkVisibility()) continue;
      const { left, right } = box.getBoundingClientRect();
      const isOut = (one) => {
        const rect = one.getBoundingClientRect();
        return (rect.right > right + 0.5 || rect.left < left - 0.5) && isInside(box, one);
      };
      const culprit = [...box.querySelectorAll("*")].find(isOut);
      say((culprit ? name(culprit) : "text") + " leaves " + name(box));
    }
    const dialog = [...document.querySelectorAll("dialog[open]")].at(-1);
    const box = dialog?.getBoundingClientRect();
    const isOnScreen = ({ left, right, top, bottom }) =>
      left >= 0 && right <= innerWidth && top >= 0 && bottom <= innerHeight;
    if (box && !isOnScreen(box)) say(name(dialog) + " leaves the screen");
    const controls = "button, input, select, textarea, a, summary";
    for (const one of dialog?.querySelectorAll(controls) ?? []) {
      if (!one.checkVisibility()) continue;
      const rect = one.getBoundingClientRect();
      if (rect.left < box.left || rect.right > box.right) say(name(one) + " is beside its dialog");
      // A dialog scrolls up and down, below its buttons.
      const isBelow = rect.bottom > Math.min(box.bottom, innerHeight);
      if (isBelow && one.closest(".buttons")) say(name(one) + " is out of reach");
    }
    for (const list of document.querySelectorAll(".figures")) {
      const last = list.lastElementChild?.getBoundingClientRect();
      if (last && last.right < list.getBoundingClientRect().right - 2) say("figures leave a hole");
    }
    // Narrower screens have to, but for lists: there, the first columns are those that matter.
    for (const one of document.querySelectorAll(innerWidth >= 1280 ? ".wide" : ".wide.as-list"))
      if (one.scrollWidth > one.clientWidth + 1 && one.checkVisibility())
        say(name(one) + " scrolls sideways");
    for (const one of document.querySelectorAll(":is(input, textarea)[readonly]"))
      if (one.scrollWidth > one.clientWidth + 1 || one.scrollHeight > one.clientHeight + 1)
        say(name(one) + " shows a part of its text");
    for (const chart of document.querySelectorAll(".bars-frame")) {
      const [axis, plot] = [...chart.children].map((one) => one.getBoundingClientRect());
      if (axis && plot && axis.right > plot.left + 1) say("the axis of a chart is not beside it");
    }
    const middleOf = ({ top, height }) => Math.round(top + height / 2);
    const rowsOf = (rects) => new Set([...rects].map(middleOf));
    // On a phone, a date may stand above its time.
    for (const cell of innerWidth >= 640 ? document.querySelectorAll("td, th") : []) {
      const texts = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
      while (texts.nextNode()) {
        const date = /\\d+\\s[A-Z][a-z]{2}\\s\\d{4}, [\\d:]+/.exec(texts.currentNode.data);
        if (!date) continue;
        const range = document.createRange();
        range.setStart(texts.currentNode, date.index);
        range.setEnd(texts.currentNode, date.index + date[0].length);
        if (rowsOf(range.getClientRects()).size > 1) say(date[0] + " is broken");
      }
    }
    for (const one of document.querySelectorAll("form .hint")) {
      const { width, height } = one.getBoundingClientRect();
      const free = one.closest("form").clientWidth;
      const lines = height / parseFloat(getComputedStyle(one).lineHeight);
      if (lines > 2.5 && width < free / 1.5) say(name(one) + " is squeezed");
    }
    for (const tools of innerWidth >= 640 ? document.querySelectorAll(".tools") : []) {
      const rects = [...tools.children]
        .filter((one) => one.localName !== "dialog").map((one) => one.getBoundingClientRect());
      const last = rowsOf(rects.slice(-1));
      const before = rowsOf(rects.slice(0, -1));
      if (rects.length > 2 && ![...last].some((row) => before.has(row)))
        say(name(tools.lastElementChild) + " is alone on its row");
    }
    for (const one of document.querySelectorAll("main .tag"))
      if (one.scrollWidth > one.clientWidth + 1) say(name(one) + " is wider than its place");
    for (const one of document.querySelectorAll(".key-name > .name"))
      if (one.scrollWidth > one.clientWidth && one.clientWidth < 40)
        say(name(one) + " has no place");
    const title = document.querySelector("h1")?.textContent ?? "";
    if (/^[a-z]+_\\w+$/.test(title)) say(title + " is the title");
    for (const one of document.querySelectorAll("main *, dialog *")) {
      if (one.scrollWidth <= one.clientWidth || one.clientWidth === 0) continue;
      if (getComputedStyle(one).textOverflow !== "ellipsis" || one.closest("[title]")) continue;
      if (one.checkVisibility()) say(name(one) + " is cut, and has no title");
    }
  };
  for (const font of ${JSON.stringify(fonts)}) {
    document.body.style.fontFamily = '"' + font + '"';
    judge(font);
  }
  document.body.style.fontFamily = "";
  return [...problems];
})()`;
