/* The switch between the dialects, in the header of each page: see book/_ext/dialect.py. */
(function () {
  const html = document.documentElement;
  const buttons = () => document.querySelectorAll("[data-choose-dialect]");

  function show() {
    for (const button of buttons()) {
      button.setAttribute("aria-pressed", String(button.dataset.chooseDialect === html.dataset.dialect));
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
