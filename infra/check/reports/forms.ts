import type { Listed } from "../../registry.ts";
import { github } from "./github.ts";
import { json } from "./json.ts";
import { junit } from "./junit.ts";
import type { Output } from "./outputs.ts";
import { policyReport } from "./policyreport.ts";
import type { Report } from "./report.ts";
import { sarif } from "./sarif.ts";
import { text } from "./text.ts";
import { isColoured, painter } from "./told.ts";

const reports: Record<string, (output: Output, isLive: boolean, catalogue: Listed[]) => Report> = {
  text: ({ file }, isLive) => text(painter(file === undefined && isColoured(process.stdout, process.env)), !isLive),
  json,
  junit: () => junit(),
  sarif: (_, __, catalogue) => sarif(catalogue.map(({ name, rule: { summary } }) => ({ name, summary }))),
  github,
  policyreport: (_, isLive) => policyReport({ passes: !isLive }),
};
/** By what `--output` calls them. */
export const forms = Object.keys(reports);

/** A report in one of the forms; of a cluster, it leaves out what would be too much of what is fine. */
export const reportIn = (output: Output, isLive: boolean, catalogue: Listed[]): Report =>
  (reports[output.form] ?? json)(output, isLive, catalogue);
