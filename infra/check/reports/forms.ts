import type { CatalogueRule } from "../../catalogue/registry.ts";
import { isColoured, painter, text } from "./format.ts";
import { github } from "./github.ts";
import { json } from "./json-report.ts";
import { junit } from "./junit.ts";
import type { Output } from "./outputs.ts";
import { policyReport, type ReportVersion } from "./policyreport.ts";
import type { Report } from "./report.ts";
import { sarif } from "./sarif.ts";

interface Purpose {
  isLive: boolean;
  catalogue: CatalogueRule[];
  /** Undefined for files, and for a cluster that serves no reports. */
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
/** The values of `--output`. */
export const forms = Object.keys(reports);

/** Opens a report; on a cluster, some forms leave out objects without findings. */
export const reportIn = (output: Output, purpose: Purpose): Report => (reports[output.form] ?? json)(output, purpose);
