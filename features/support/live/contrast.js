// The contrast of each text that is seen, with what is behind it: all backgrounds of the elements
// that it is in, one over the other; in the timeline, the shapes of its bar and its node.
() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\d.]+/g).map(Number);
    return { rgb: [r, g, b], a };
  };
  const over = (top, below) => top.rgb.map((value, at) => top.a * value + (1 - top.a) * below[at]);
  const luminance = (rgb) => {
    const [r, g, b] = rgb.map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    if (element === null) return [255, 255, 255];
    const style = getComputedStyle(element);
    const below = behind(element.parentElement);
    const layers = [];
    if (element.matches?.(".run")) layers.push([element.querySelector(".whole"), 1]);
    if (element.matches?.(".node")) {
      const shape = element.querySelector("rect");
      layers.push([shape, Number(getComputedStyle(shape).fillOpacity)]);
    }
    let colour = over(parse(style.backgroundColor), below);
    for (const [shape, opacity] of layers) {
      colour = over({ rgb: parse(getComputedStyle(shape).fill).rgb, a: opacity }, colour);
    }
    return colour;
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    const element = walker.currentNode.parentElement;
    if (!text || !element.checkVisibility() || element.closest(".unseen, title, noscript")) continue;
    const style = getComputedStyle(element);
    const own = element instanceof SVGElement ? style.fill : style.color;
    const below = behind(element);
    const [one, other] = [luminance(over(parse(own), below)), luminance(below)];
    const contrast = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    found.push([contrast, text.slice(0, 40), String(element.className.baseVal ?? element.className)]);
  }
  return found;
}
