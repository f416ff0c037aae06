// Launches kernel k of FOLDER/k.cubin with the geometry and arguments in FOLDER/plan.txt. Arrays
// without data stay uninitialized, for initcheck.
#include <cuda.h>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
#define OK(x) do { CUresult r = (x); if (r) { const char* s; cuGetErrorName(r, &s); \
  printf("error %s\n", s); fflush(stdout); exit(3); } } while (0)
int main(int, char** argv) {
  std::string folder = argv[1], word;
  CUdevice device; CUcontext context; CUmodule module; CUfunction function;
  OK(cuInit(0)); OK(cuDeviceGet(&device, 0));
  OK(cuDevicePrimaryCtxRetain(&context, device)); OK(cuCtxSetCurrent(context));
  OK(cuModuleLoad(&module, (folder + "/k.cubin").c_str()));
  OK(cuModuleGetFunction(&function, module, "k"));
  std::ifstream plan(folder + "/plan.txt");
  unsigned n[7];
  for (unsigned& x : n) plan >> x;
  std::vector<unsigned long long> values;
  while (plan >> word) {
    unsigned long long value;
    if (word == "int") { plan >> value; values.push_back(value); continue; }
    size_t nbytes; plan >> nbytes;
    CUdeviceptr address; OK(cuMemAlloc(&address, nbytes));
    if (word != "empty") {
      std::ifstream file(folder + "/" + word, std::ios::binary);
      std::string data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      OK(cuMemcpyHtoD(address, data.data(), nbytes));
    }
    values.push_back(address);
  }
  std::vector<void*> arguments;
  for (auto& value : values) arguments.push_back(&value);
  OK(cuLaunchKernel(function, n[0], n[1], n[2], n[3], n[4], n[5], n[6], 0, arguments.data(), 0));
  OK(cuCtxSynchronize());
}
