import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after } from "node:test";

/**
 * Creates an empty folder. Called in a test, it deletes the folder after that test; called at the top of a file, after
 * all tests of the file. A call in a hook such as before() would delete the folder too early.
 */
export const createTestFolder = async (): Promise<string> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-test-"));
  after(() => rm(folder, { recursive: true, force: true }));
  return folder;
};
