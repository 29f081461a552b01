// Typeset every formula: pages mark them with the class arithmatex. Runs again when the site swaps pages without a reload.
function typeset() {
  for (const formula of document.querySelectorAll(".arithmatex")) {
    renderMathInElement(formula, {
      delimiters: [
        { left: "\\[", right: "\\]", display: true },
        { left: "\\(", right: "\\)", display: false },
      ],
      throwOnError: false,
    });
  }
}

if (window.document$) {
  document$.subscribe(typeset);
} else {
  document.addEventListener("DOMContentLoaded", typeset);
}
