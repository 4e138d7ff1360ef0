// what can be used, or is a picture, and has no name
(() => {
  const all = document.querySelectorAll("button, select, input, canvas:not(button canvas):not(.ramp), [role]");
  return [...all]
    .filter((each) => each.checkVisibility() && !each.closest("[aria-hidden]"))
    .filter((each) => !["status", "tabpanel"].includes(each.role))
    .filter((each) => !each.ariaLabel && !each.textContent.trim() && !each.labels?.length)
    .map((each) => each.outerHTML.slice(0, 80));
})()
