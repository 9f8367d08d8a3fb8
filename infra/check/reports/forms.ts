import type { Listed } from "../../catalogue/registry.ts";
import { isColoured, painter } from "./format.ts";
import { github } from "./github.ts";
import { json } from "./json-report.ts";
import { junit } from "./junit.ts";
import type { Output } from "./outputs.ts";
import { policyReport, type ReportVersion } from "./policyreport.ts";
import type { Report } from "./report.ts";
import { sarif } from "./sarif.ts";
import { text } from "./text.ts";

/** What a report is made for. */
interface Purpose {
  isLive: boolean;
  catalogue: Listed[];
  /** The reports that the cluster serves. */
  reportVersion: ReportVersion | undefined;
}

const reports: Record<string, (output: Output, purpose: Purpose) => Report> = {
  text: ({ file }, { isLive }) => text(painter(file === undefined && isColoured(process.stdout, process.env)), !isLive),
  json,
  junit: () => junit(),
  sarif: (_, { catalogue }) => sarif(catalogue.map(({ name, rule: { summary } }) => ({ name, summary }))),
  github,
  policyreport: (_, { isLive, reportVersion }) => policyReport({ passes: !isLive, apiVersion: reportVersion }),
};
/** By what `--output` calls them. */
export const forms = Object.keys(reports);

/** A report in one of the forms; of a cluster, it leaves out what would be too much of what is fine. */
export const reportIn = (output: Output, purpose: Purpose): Report => (reports[output.form] ?? json)(output, purpose);
