import type { Option, Options } from "../command.ts";
import { Complaint, sentenceOf } from "../complaint.ts";
import { type Functions, openFunctions } from "./versions.ts";

/** What every verb for AWS takes. */
export const stageOption = {
  stage: { type: "string", value: "NAME", says: "the stage that was deployed, as osls deploy --stage named it" },
} satisfies Record<string, Option>;

/** The functions of the stage that was named, with the credentials that are there. What AWS says is passed on as a sentence. */
export const inStage = async <T>(options: Options, act: (functions: Functions) => Promise<T>): Promise<T> => {
  const stage = options.text("stage");
  if (stage === undefined) throw new Complaint("--stage must name the stage, for instance --stage prod");
  try {
    return await act(openFunctions(stage));
  } catch (error) {
    if (error instanceof Complaint || !isOfAws(error)) throw error;
    throw new Complaint(`AWS: ${sentenceOf(error)}`, 3);
  }
};

/** Its errors carry metadata; those of its credentials and its region only a name or a sentence. */
const isOfAws = (error: unknown): boolean =>
  error instanceof Error &&
  ("$metadata" in error ||
    ["CredentialsProviderError", "TimeoutError"].includes(error.name) ||
    /region is missing/i.test(error.message));

/** `90s`, `30m`, `2h`, as milliseconds; less than a minute would be over before it is live. */
export const duration = (text: string | undefined, option: string): number => {
  const [, number = "", unit = ""] = /^(\d{1,4})([smh])$/.exec(text ?? "") ?? [];
  const milliseconds = Number(number) * ({ s: 1000, m: 60_000, h: 3_600_000 }[unit] ?? 0);
  if (milliseconds < 60_000 || milliseconds > 24 * 3_600_000)
    throw new Complaint(
      `--${option} takes a time from 1m to 24h, for instance 90s, 30m or 2h${text === undefined ? "" : `, not "${text}"`}`,
    );
  return milliseconds;
};
