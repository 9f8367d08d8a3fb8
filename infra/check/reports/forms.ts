import type { CatalogueRule } from "../../catalogue/registry.ts";
import { createPainter, createTextReport, isColoured } from "./format.ts";
import { createGithubReport } from "./github.ts";
import { createJsonReport } from "./json-report.ts";
import { createJunitReport } from "./junit.ts";
import type { ReportOutput } from "./outputs.ts";
import { createPolicyReport, type PolicyReportVersion } from "./policyreport.ts";
import type { CheckReportWriter } from "./report.ts";
import { createSarifReport } from "./sarif.ts";

interface ReportContext {
  isLive: boolean;
  catalogue: CatalogueRule[];
  /**
   * The PolicyReport version that the cluster serves; undefined for a check of files, and if the cluster serves none.
   */
  reportVersion: PolicyReportVersion | undefined;
}

const reports: Record<string, (output: ReportOutput, purpose: ReportContext) => CheckReportWriter> = {
  text: ({ file }, { isLive }) =>
    createTextReport(createPainter(file === undefined && isColoured(process.stdout, process.env)), !isLive),
  json: createJsonReport,
  junit: () => createJunitReport(),
  sarif: (_, { catalogue }) => createSarifReport(catalogue.map(({ name, rule: { summary } }) => ({ name, summary }))),
  github: createGithubReport,
  policyreport: (_, { isLive, reportVersion }) => createPolicyReport({ passes: !isLive, apiVersion: reportVersion }),
};
/** The report formats of `postern check`: the values of `--output`. */
export const checkReportFormats = Object.keys(reports);

/**
 * Creates the report of `check` in the form of `--output`. If a cluster is checked, some forms leave out objects
 * without findings.
 */
export const createCheckReport = (output: ReportOutput, purpose: ReportContext): CheckReportWriter =>
  (reports[output.form] ?? createJsonReport)(output, purpose);
