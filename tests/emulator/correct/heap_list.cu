//! gemmlab args=y:i32[16]=empty block=8 grid=2
// Heap addresses depend on the order of threads.
struct Node {
  int value;
  Node* next;
};
extern "C" __global__ void k(int* y) {
  Node* head = nullptr;
#pragma unroll 1
  for (int i = 0; i <= threadIdx.x; ++i) {
    Node* node = new Node;
    node->value = i;
    node->next = head;
    head = node;
  }
  int sum = 0;
  while (head) {
    Node* node = head;
    sum += node->value;
    head = node->next;
    delete node;
  }
  y[blockIdx.x * 8 + threadIdx.x] = sum;
}
