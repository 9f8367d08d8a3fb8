import type { CatalogueRule } from "../../catalogue/registry.ts";
import type { CheckReportWriter } from "./check-report.ts";
import { createPainter, createTextReport, createWholeTextReport, isColoured } from "./format.ts";
import { leaveOutKnownFindings } from "./known-findings.ts";
import type { ReportOutput } from "./outputs.ts";
import type { PolicyReportVersion } from "./policyreport.ts";

/** The API groups of PolicyReports that `check` supports, with the repositories of their CRDs, for help texts. */
export const policyReportGroupsHelp =
  "openreports.io (github.com/openreports/reports-api) or wgpolicyk8s.io (github.com/kubernetes-sigs/wg-policy-prototypes, policy-report/crd/v1alpha2)";

/** What reports need besides the results. */
interface ReportContext {
  isLive: boolean;
  /** True if the text report has all objects, not only those with findings. */
  listsAll: boolean;
  catalogue: CatalogueRule[];
  /** The PolicyReport version of the cluster; undefined for a check of files, and if the cluster serves none. */
  reportVersion: PolicyReportVersion | undefined;
  /** The findings of an earlier check, which reports for people leave out. */
  known?: ReadonlySet<string> | undefined;
}

type ReportCreator = (output: ReportOutput, purpose: ReportContext) => Promise<CheckReportWriter>;

const createJson: ReportCreator = async () => (await import("./json-report.ts")).createJsonReport();

/** The reports by format. Each format's module is loaded only for its report. */
const reports: Record<string, ReportCreator> = {
  text: async ({ file }, { listsAll }) => {
    const paint = createPainter(file === undefined && isColoured(process.stdout, process.env));
    return listsAll ? createWholeTextReport(paint) : createTextReport(paint);
  },
  json: createJson,
  junit: async () => (await import("./junit.ts")).createJunitReport(),
  sarif: async (_, { catalogue }) => {
    const { createSarifReport } = await import("./sarif.ts");
    return createSarifReport(catalogue.map(({ name, rule: { summary } }) => ({ name, summary })));
  },
  github: async () => (await import("./github.ts")).createGithubReport(),
  policyreport: async (_, { isLive, reportVersion }) => {
    const { createPolicyReport } = await import("./policyreport.ts");
    // The cluster of a live check would store a result for each rule and object. So those that passed are only counted.
    return createPolicyReport({ listsPasses: !isLive, apiVersion: reportVersion });
  },
};
/** The formats for people, who see only findings. */
const forPeople = new Set(["text", "github"]);

/** The report formats of `postern check`: the values of `--output`. */
export const checkReportFormats = Object.keys(reports);

/**
 * Creates the report of `check` in the format of `--output`. Reports for people leave out the findings in
 * `purpose.known`.
 */
export const createCheckReport: ReportCreator = async (output, purpose) => {
  const report = await (reports[output.form] ?? createJson)(output, purpose);
  return purpose.known && forPeople.has(output.form) ? leaveOutKnownFindings(report, purpose.known) : report;
};
