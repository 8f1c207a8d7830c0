// What the scripts share: the part of plotly's interface that they use, and the data that Python hands to each panel.

interface Trace {
  name?: string;
  x?: unknown[];
  y?: unknown[];
  customdata?: unknown[];
  visible?: boolean;
  showlegend?: boolean;
  type?: string;
  mode?: string;
  hovertemplate?: string;
  hoverinfo?: string;
  line?: { color?: string; dash?: string; width?: number; shape?: string };
  marker?: { color?: string; symbol?: string; size?: number | number[]; line?: object; opacity?: number };
  text?: string[];
  textposition?: string;
  textfont?: object;
  error_x?: { halves?: unknown[] } | null;
  error_y?: { halves?: unknown[] } | null;
  fill?: string;
  fillcolor?: string;
  cliponaxis?: boolean;
  opacity?: number;
  meta?: { column?: string };
}
interface Layout {
  title?: { text?: string };
  xaxis?: Axis;
  yaxis?: Axis;
  shapes?: object[];
  [key: string]: any;
}
interface Axis {
  title?: { text?: string };
  type?: string;
  range?: unknown[];
  [key: string]: any;
}
declare const Plotly: {
  react(holder: HTMLElement, data: Trace[], layout: Layout, config: object): Promise<unknown>;
  toImage(figure: { data: Trace[]; layout: Layout }, options: object): Promise<string>;
  Plots: { resize(holder: HTMLElement): void };
};

type Show = (root: HTMLElement, data: any) => void;
interface Drawing {
  data: Trace[];
  layout: Layout;
  seen: boolean;
}
interface Style {
  color: string;
  dash: string;
  symbol: string;
}

interface CurveLine extends Style {
  name: string;
  points: { decoding: string; precision: number[]; recall: number[]; area: number }[];
}
interface CurvesData {
  lams: (number | string)[];
  decodings: { label: string; t: number | string }[];
  lines: CurveLine[];
}

interface PlotWindow {
  recall: [number, number];
  precision: [number, number];
}
interface FrontierPoints {
  decoding: string[];
  t: (number | string)[];
  precision: number[];
  recall: number[];
  precision_half: (number | null)[];
  recall_half: (number | null)[];
}
interface FrontierLine extends Style {
  name: string;
  frontier: FrontierPoints;
  temperature: FrontierPoints;
}
interface FrontierKind {
  kind: string;
  caption: string;
  ceiling: number | null;
  stars: { name: string; precision: number; recall: number }[];
  zoom: PlotWindow | null;
  whole: PlotWindow;
  methods: boolean;
  lines: FrontierLine[];
}

interface SettingTarget {
  levels: number[];
  all: number[];
  shared?: number[];
}
interface SettingData {
  kinds: {
    kind: string;
    grids: string;
    targets: { recall: SettingTarget; precision: SettingTarget };
    answers: { sentences: string[]; rows: string[][] }[];
  }[];
}

interface Cell {
  label: string;
  kept: number;
  drawn: number;
  distinct: number;
  cut: number;
}
interface SampleRun {
  label: string;
  blob: string;
  cells: Cell[];
}
interface SamplesData {
  prompts: string[];
  runs: SampleRun[];
  labels: string[];
  chosen_runs: number[];
  chosen_labels: number[];
}
type Sample = [prompt: number, text: string, note: string, whole: number];

interface Case {
  V: number;
  K: number;
  rho: number;
  a: number;
  epsilon: number;
}

interface Cut {
  minP: number;
  order: "before" | "after";
}
interface Law {
  b: number;
  sparsity: number;
  noiseRatio: number;
  rareRatio: number;
  separable: boolean;
  epsilon0: number;
  t0: number;
  best: (lam: number) => number;
  lambdaMin: (t: number) => number;
  lambdaMax: (t: number) => number;
  precision: (lam: number, t: number) => number;
  recall: (lam: number, t: number) => number;
  conditionals: (t: number) => { over: number; under: number; kept: number; noise: number };
  area: (t: number) => number;
}

type Values = Record<string, number>;
interface Loss {
  title: string;
  params: string[];
  formula: string;
  limit: string;
  weight: (logq: number, v: Values, p: readonly number[]) => number;
  optimum: (p: readonly number[], v: Values) => number[] | null;
}
interface SliderSpec {
  key: string;
  label: string;
  from: number;
  to: number;
  value: number;
  steps: number;
  log?: boolean;
  whole?: boolean;
  last?: number;
  format?: (x: number) => string;
}
