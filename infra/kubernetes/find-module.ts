import { dirname } from "node:path";
import { fileURLToPath } from "node:url";
import { isCheckout } from "../cli/roots.ts";
import { manifestFile } from "./module-files.ts";

/**
 * Returns the folder of the packed module: the package `postern-kubernetes` that is installed with Postern, else, in a
 * checkout, what `npm run kubernetes` built of its sources; undefined if there is none. The folder in which a command runs
 * doesn't count.
 */
export const findModule = async (): Promise<string | undefined> => findInstalledModule() ?? (await findBuiltModule());

const findInstalledModule = (): string | undefined => {
  try {
    return dirname(fileURLToPath(import.meta.resolve(`postern-kubernetes/${manifestFile}`)));
  } catch {
    return undefined;
  }
};

const findBuiltModule = async (): Promise<string | undefined> => {
  // The package doesn't have the folder build/. An import that the compiler sees would add it.
  const file: string = "./build/module-program.ts";
  return isCheckout ? (await import(file)).findBuiltModule() : undefined;
};
