"use strict";
/* Draw the figures of a page with BokehJS. figures.py describes the data. */
const mxcluster = (() => {
  const AXES = {seconds: "seconds", step: "steps", epoch: "epochs", samples: "samples"};
  const FEW = 12; // members with wide lines
  const state = {axis: "", span: 0, log: false, hidden: new Set(), plots: [], lines: []};
  let data, root;

  const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const element = (tag, fields = {}, ...children) => {
    const made = Object.assign(document.createElement(tag), fields);
    made.append(...children);
    return made;
  };

  /* Load the library: an element of the page has it as base64 of gzip. */
  async function load() {
    if (window.Bokeh) return;
    const packed = Uint8Array.from(atob(document.getElementById("library").textContent.trim()), sign => sign.charCodeAt(0));
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    document.head.append(element("script", {textContent: await new Response(stream).text()}));
  }

  /* Return trailing means over `span` values. A null stays null. */
  function smoothed(values, span) {
    if (span < 2) return values;
    const found = [], window_ = [];
    let sum = 0;
    for (const value of values) {
      if (value === null) { found.push(null); continue; }
      window_.push(value);
      sum += value;
      if (window_.length > span) sum -= window_.shift();
      found.push(sum / window_.length);
    }
    return found;
  }

  function columns(figure, line) {
    const axis = axis_of(figure);
    const span = figure.smooth ? Math.ceil(line.y.length * state.span / 100) : 0;
    const y = smoothed(line.y, span), x = line.x[axis];
    const rows = y.map((value, place) => place).filter(place => x[place] !== null && y[place] !== null && !(state.log && y[place] <= 0));
    const pick = values => rows.map(place => values[place]);
    const found = {x: pick(x), y: pick(y), name: rows.map(() => data.members[line.member].name)};
    if (line.low.length) Object.assign(found, {low: pick(line.low), high: pick(line.high)});
    return found;
  }

  const axis_of = figure => figure.axes.includes(state.axis) ? state.axis : figure.axes[0];

  /* Break a title into lines for the width of a phone. */
  const wrapped = text => window.innerWidth < 600 ? text.replace(/(.{1,34})(\s+|$)/g, "$1\n").trim() : text;

  function plot_of(figure, zero, options) {
    const narrow = window.innerWidth < 600;
    const plot = new Bokeh.Plotting.Figure({
      height: narrow ? 260 : 320, sizing_mode: "stretch_width", output_backend: "canvas",
      title: wrapped(figure.title), tools: "box_zoom,pan,wheel_zoom,reset,save", toolbar_location: "above",
      toolbar_sticky: false, // in a row of its own: a long title would push it out of the page
      y_axis_label: figure.y_title, ...options,
      y_range: new Bokeh.DataRange1d(zero ? {start: 0} : {}),
    });
    plot.toolbar.logo = null;
    const zoom = plot.toolbar.tools.find(tool => tool instanceof Bokeh.BoxZoomTool);
    plot.toolbar.active_drag = narrow ? null : zoom; // on a phone, a finger scrolls the page
    const ink = css("--ink"), faint = css("--faint"), line = css("--line");
    Object.assign(plot, {background_fill_alpha: 0, border_fill_alpha: 0, outline_line_color: line});
    plot.title.text_color = ink;
    for (const axis of [...plot.below, ...plot.left]) {
      Object.assign(axis, {axis_label_text_color: faint, major_label_text_color: faint, axis_line_color: line,
        major_tick_line_color: line, minor_tick_line_color: null, axis_label_text_font_style: "normal"});
    }
    for (const grid of plot.center) grid.grid_line_color = line;
    return plot;
  }

  function hover(plot, renderers, tooltips) {
    plot.add_tools(new Bokeh.HoverTool({renderers, tooltips, line_policy: "nearest"}));
  }

  function draw_lines(figure, ranges) {
    const axis = axis_of(figure), title = AXES[axis] || axis;
    const plot = plot_of(figure, figure.zero && !state.log, {x_axis_label: title, y_axis_type: state.log ? "log" : "linear",
      x_range: ranges[axis] = ranges[axis] || new Bokeh.DataRange1d({range_padding: 0.02})});
    const hovered = [];
    for (const line of figure.lines) {
      const member = data.members[line.member];
      const source = new Bokeh.ColumnDataSource({data: columns(figure, line)});
      const look = {source, line_color: member.colour};
      const field = name => ({field: name});
      const glyphs = [plot.line(field("x"), field("y"), {...look, line_width: data.members.length > FEW ? 1.2 : 1.8, line_dash: [...member.dash]})];
      if (line.points || line.y.length < 30) glyphs.push(plot.scatter(field("x"), field("y"), {source, size: 5, color: member.colour}));
      if (line.low.length) glyphs.push(plot.segment(field("x"), field("low"), field("x"), field("high"), look));
      for (const glyph of glyphs) glyph.visible = !state.hidden.has(line.member);
      hovered.push(glyphs[0]);
      state.lines.push({figure, line, source, glyphs});
    }
    hover(plot, hovered, [["", "@name"], [title, "@x{0,0.[00]}"], [figure.title, "@y{0,0.[0000]}"]]);
    const mark = {line_color: css("--bad"), line_dash: [4, 4], line_width: 1.2};
    if (figure.moment !== null && axis === "seconds") {
      plot.add_layout(new Bokeh.Span({location: figure.moment, dimension: "height", ...mark}));
      plot.title.text = wrapped(figure.title + "  (dashed: " + figure.moment_name + " failed)");
    }
    if (figure.level !== null) plot.add_layout(new Bokeh.Span({location: figure.level, dimension: "width", ...mark}));
    return plot;
  }

  function draw_bars(figure) {
    const places = figure.names.map((_, place) => place);
    const plot = plot_of(figure, true, {x_axis_label: figure.x_title || null, x_range: new Bokeh.Range1d({start: -0.6, end: Math.max(places.length, 4) - 0.4})});
    const axis = plot.below[0];
    axis.ticker = new Bokeh.FixedTicker({ticks: places.filter(place => places.length <= 24 || place % Math.ceil(places.length / 24) === 0)});
    axis.major_label_overrides = new Map(figure.names.map((name, place) => [place, name.split(" ").join("\n")]));
    if (places.length > 6) axis.major_label_orientation = 0.7;
    plot.center[0].grid_line_color = null;
    const base = places.map(() => 0), items = [];
    figure.bars.forEach((bar, number) => {
      const width = figure.beside ? 0.8 / figure.bars.length : bar.width;
      const shift = figure.beside ? width * (number + 0.5) - 0.4 : 0;
      const rows = places.filter(place => bar.y[place] !== null);
      const bottom = rows.map(place => figure.stacked ? base[place] : 0);
      const source = new Bokeh.ColumnDataSource({data: {
        x: rows.map(place => place + shift), bottom, top: rows.map((place, row) => bottom[row] + bar.y[place]),
        value: rows.map(place => bar.y[place]), at: rows.map(place => figure.names[place]), name: rows.map(() => bar.name)}});
      rows.forEach(place => { base[place] += bar.y[place]; });
      const field = name => ({field: name});
      const glyph = plot.vbar({x: field("x"), top: field("top"), bottom: field("bottom"), width: 0.94 * width, source,
        fill_color: bar.colour, line_color: null, fill_alpha: bar.pale ? 0.35 : 1});
      items.push([bar, glyph]);
      const ends = rows.filter(place => bar.low.length && bar.low[place] !== null && bar.high[place] !== null);
      if (ends.length) {
        const whiskers = new Bokeh.ColumnDataSource({data: {x: ends.map(place => place + shift),
          low: ends.map(place => bar.low[place]), high: ends.map(place => bar.high[place])}});
        plot.segment(field("x"), field("low"), field("x"), field("high"), {source: whiskers, line_color: css("--ink"), line_width: 2});
      }
    });
    hover(plot, items.map(item => item[1]), [["", "@at"], ["@name", "@value{0,0.[00]}"]]);
    if (figure.points.length) {
      const source = new Bokeh.ColumnDataSource({data: {x: figure.points.map(point => point[0]), y: figure.points.map(point => point[1])}});
      plot.scatter({field: "x"}, {field: "y"}, {source, size: 7, color: css("--ink"), fill_alpha: 0.6});
    }
    if (figure.level !== null) { // a glyph: a span would lie outside of the range of the bars
      plot.line([-0.6, Math.max(places.length, 4) - 0.4], [figure.level, figure.level], {line_color: css("--bad"), line_dash: [4, 4], line_width: 1.2});
    }
    return plot;
  }

  async function draw() {
    state.lines = [];
    state.plots = [];
    const page = new Bokeh.Document(), places = [], ranges = {}, grid = root.querySelector(".plots");
    grid.replaceChildren();
    for (const figure of data.figures) {
      const plot = figure.kind === "lines" ? draw_lines(figure, ranges) : draw_bars(figure);
      const place = element("figure", {className: "plot"});
      grid.append(place);
      if (figure.kind === "bars" && figure.bars.length > 1) {
        const caption = element("figcaption", {className: "faint"});
        for (const bar of figure.bars) caption.append(swatch(bar.colour, bar.pale ? 0.35 : 1), bar.name, " ");
        place.append(caption);
      }
      state.plots.push(plot);
      places.push(place);
      page.add_root(plot);
    }
    await Bokeh.embed.add_document_standalone(page, grid, places); // one document: the figures share ranges
    root.dataset.drawn = String(data.figures.length);
  }

  function update() {
    for (const {figure, line, source, glyphs} of state.lines) {
      source.data = columns(figure, line);
      for (const glyph of glyphs) glyph.visible = !state.hidden.has(line.member);
    }
  }

  const swatch = (colour, opacity = 1) => {
    const made = element("i", {className: "swatch"});
    Object.assign(made.style, {background: colour, opacity});
    return made;
  };

  function control(label, input) {
    return element("label", {}, label, input);
  }

  function controls() {
    const lines = data.figures.filter(figure => figure.kind === "lines");
    const bar = root.querySelector(".controls");
    bar.replaceChildren();
    if (!lines.length) return;
    const axes = [...new Set(lines.flatMap(figure => figure.axes))].filter(axis => axis in AXES);
    if (axes.length > 1) {
      const select = element("select", {name: "axis"}, ...axes.map(axis => element("option", {value: axis, textContent: AXES[axis]})));
      select.value = axes.includes(state.axis) ? state.axis : axes[0];
      state.axis = select.value;
      select.onchange = () => { state.axis = select.value; draw(); };
      bar.append(control("x axis ", select));
    }
    if (lines.some(figure => figure.smooth)) {
      const range = element("input", {type: "range", name: "smoothing", min: 0, max: 20, step: 0.5, value: state.span});
      range.oninput = () => { state.span = Number(range.value); update(); };
      bar.append(control("smoothing ", range));
    }
    const log = element("input", {type: "checkbox", name: "log", checked: state.log});
    log.onchange = () => { state.log = log.checked; draw(); };
    bar.append(control("", log));
    log.after(" log scale");
    if (data.members.length > 1) bar.append(members());
  }

  function members() {
    const box = element("div", {className: "members"}), boxes = [];
    const all = element("button", {type: "button", textContent: "all"}), none = element("button", {type: "button", textContent: "none"});
    data.members.forEach((member, place) => {
      const input = element("input", {type: "checkbox", name: "member", value: place, checked: !state.hidden.has(place)});
      input.onchange = () => { state.hidden[input.checked ? "delete" : "add"](place); update(); };
      boxes.push(input);
      box.append(element("label", {}, input, swatch(member.colour), member.name));
    });
    const set = shown => boxes.forEach((input, place) => { input.checked = shown; state.hidden[shown ? "delete" : "add"](place); });
    all.onclick = () => { set(true); update(); };
    none.onclick = () => { set(false); update(); };
    box.prepend(all, none);
    return box;
  }

  async function show(found) {
    data = found;
    root = document.getElementById("figures");
    try {
      await load();
      state.span = data.figures.some(figure => figure.smooth) ? 2 : 0;
      controls();
      await draw();
    } catch (error) {
      root.prepend(element("p", {className: "bad", textContent: "This browser cannot draw the figures (" + error + "). It must be Firefox 113, Chrome 80, Safari 16.4 or newer. The picture in the same folder has the same data."}));
      throw error;
    }
  }

  return {show, state};
})();
