import { statSync } from "node:fs";
import { isAbsolute, resolve } from "node:path";
import type { Stage } from "../aws/stage.ts";
import { Complaint } from "../cli/complaint.ts";
import { isBuilt, openBundles } from "./bundle-side.ts";
import {
  buildCheckout,
  buildCommit,
  commitOf,
  isCheckout,
  isShallow,
  namesInGit,
  root,
  type Wish,
} from "./checkouts.ts";
import { openReleased } from "./released-side.ts";
import type { Scratch } from "./scratch.ts";
import { past, type Side, sideOf } from "./sides.ts";

export interface Means {
  stage: Stage | undefined;
  wish: Wish;
  /** The time limit of one review on this machine. */
  milliseconds: number;
  scratch: Scratch;
  say(line: string): void;
}

const isReleased = (text: string) => text === "live" || /^r\d+$/.test(text);

/** Opens the side that `text` names: what was recorded, the working tree, a release, a commit or a folder. */
export const openSide = async (text: string, means: Means): Promise<Side> => {
  if (text === "recorded") return past;
  if (means.stage && isReleased(text)) return sideOf(await openReleased(means.stage, text));
  const { wish, milliseconds, scratch, say } = means;
  const bundles = async (folder: string) => sideOf(await openBundles(text, folder, milliseconds, scratch));
  if (text === "working-tree") return bundles(await buildCheckout(root, text, wish, scratch, say));
  // A postern.yaml that the user names applies to the working tree only.
  const own = { rules: wish.rules };
  const isPath = isAbsolute(text) || /^\.\.?(\/|$)/.test(text);
  const commit = isPath ? undefined : await commitOf(text, scratch);
  if (commit !== undefined) return bundles(await buildCommit(commit, text, own, scratch, say));
  const folder = resolve(text);
  if (isCheckout(folder)) return bundles(await buildCheckout(folder, text, own, scratch, say));
  if (await isBuilt(folder)) return bundles(folder);
  throw await unknown(text, folder, means);
};

const unknown = async (text: string, folder: string, { stage, scratch }: Means): Promise<Complaint> => {
  if (statSync(folder, { throwIfNoEntry: false })?.isDirectory())
    return new Complaint(
      `${text} is no version: the folder is neither a checkout of Postern nor what its build writes`,
    );
  if (!stage && isReleased(text)) return new Complaint(`${text} is a release of a stage; --stage must say of which`);
  const names = await namesInGit(scratch);
  const known = [
    "recorded",
    "working-tree",
    ...(stage ? ["live or a release such as r7"] : []),
    names.length > 0 ? `a commit (${names.join(", ")})` : "a commit, where there is git",
    "a folder",
  ];
  const more = (await isShallow(scratch))
    ? "; this clone is shallow, and git fetch --unshallow brings other commits"
    : "";
  return new Complaint(
    `there is no version "${text}"; it can be ${known.slice(0, -1).join(", ")} or ${known.at(-1)}${more}`,
  );
};
