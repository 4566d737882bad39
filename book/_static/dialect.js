/* The switch between the dialects, in the header of each page: see book/_ext/dialect.py. */
(function () {
  const html = document.documentElement;
  const buttons = () => document.querySelectorAll("[data-choose-dialect]");

  function show() {
    for (const button of buttons()) {
      button.setAttribute("aria-pressed", String(button.dataset.chooseDialect === html.dataset.dialect));
    }
    // The notebook that is offered, where the page has one in this dialect.
    const there = document.querySelector('meta[name="nki-dialects"]')?.content.split(" ") ?? [];
    if (!there.includes(html.dataset.dialect)) return;
    for (const link of document.querySelectorAll('a[href*="/notebooks/"][href$=".ipynb"]')) {
      const of = `notebooks/${html.dataset.dialect}/`;
      link.setAttribute("href", link.getAttribute("href").replace(/notebooks\/(nki|neuronxcc)\//, of));
    }
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-choose-dialect]");
    if (!button) return;
    html.dataset.dialect = button.dataset.chooseDialect;
    try {
      localStorage.setItem("nki-dialect", html.dataset.dialect);
    } catch (error) {
      // Without storage the choice lasts as long as the page.
    }
    show();
  });

  document.addEventListener("DOMContentLoaded", show);
})();
